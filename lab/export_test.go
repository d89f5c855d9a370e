package lab

// RunChild runs this process as one of the tests' own children, if name is one.
func RunChild(name, config string) (known bool, err error) {
	child, ok := children[name]
	if !ok {
		return false, nil
	}
	return true, child(config)
}
