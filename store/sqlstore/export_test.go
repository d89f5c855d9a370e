package sqlstore

// Crashing is a restore that ends after a step as if its process had died there.
func (cfg RestoreConfig) Crashing(reached func(step string) error) RestoreConfig {
	cfg.reached = reached
	return cfg
}
