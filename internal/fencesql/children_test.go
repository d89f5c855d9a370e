package fencesql_test

// The test binary is its own child process: childEnv names what the child does.
const childEnv = "FENCESQL_TEST_CHILD"

var children = map[string]func(args []string) error{}
