package lab

type writerConfig struct{}

func writerChild(writerConfig) error { return nil }
