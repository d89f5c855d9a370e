package httpapi

// Routes are the paths of the calls and their methods.
func Routes() map[string]string {
	all := map[string]string{}
	for path, r := range routes {
		all[path] = r.method
	}
	return all
}
