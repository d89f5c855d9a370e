// Package alertrules checks docs/alerts.yml with Prometheus's own parser and query
// engine, in a module of its own: none of it is needed to build or use lastword.
//
// # Guarantees
//
// None beyond what its tests say: the file is one that Prometheus loads, and each rule
// fires in a history with its trouble and in no other one here.
//
// # Not guaranteed
//
// That the bounds suit a particular installation.
package alertrules
