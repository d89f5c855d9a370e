package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// maxConfigBytes is the largest configuration file.
const maxConfigBytes = 64 << 10

// notInFile are the flags that say where to look, or what to do this once.
var notInFile = []string{"config", "help", "new-key"}

// configure sets the flags of a command that were not given: from LASTWORD_…, and what
// is not there from the file of --config. Every value goes through the flag's own
// parser, so that all three ways refuse the same things.
func (a *app) configure(cmd *cobra.Command) error {
	flags := cmd.LocalNonPersistentFlags()
	if err := a.fromEnvironment(cmd, flags); err != nil {
		return err
	}
	path, err := flags.GetString("config")
	if err != nil || !flags.Changed("config") {
		return err
	}
	return fromFile(cmd, flags, path)
}

func (a *app) fromEnvironment(cmd *cobra.Command, flags *pflag.FlagSet) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "LASTWORD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := a.env(name)
		if failed != nil || f.Changed || !ok || f.Name == "help" {
			return
		}
		values := []string{value}
		if severalOf(f.Value) {
			values = strings.Split(value, ",")
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				failed = usage(cmd, "%s: %s", name, setReason(err))
				return
			}
		}
	})
	return failed
}

// severalOf reports whether a flag can be given more than once.
func severalOf(v pflag.Value) bool {
	switch v.(type) {
	case *delayFlag, *caFlag:
		return true
	}
	return false
}

// setReason is what a flag's parser says, without what pflag puts around it.
func setReason(err error) string {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = bad.Unwrap()
	}
	return reason(err)
}

// fromFile sets what neither a flag nor the environment has set. A name that is not
// known refuses the whole file: a setting must not be overlooked.
func fromFile(cmd *cobra.Command, flags *pflag.FlagSet, path string) error {
	b, err := readSmall(path, maxConfigBytes)
	if err != nil {
		return usage(cmd, "--config %s: %s", path, reason(err))
	}
	entries, err := readConfig(b)
	if err != nil {
		return usage(cmd, "--config %s: %s", path, reason(err))
	}
	given := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { given[f.Name] = f.Changed })
	for _, e := range entries {
		f := flags.Lookup(e.name)
		if f == nil || slices.Contains(notInFile, e.name) {
			return usage(cmd, "--config %s: line %d: %q is not a setting of %s", path, e.line, clip(e.name), cmd.Name())
		}
		if given[e.name] {
			continue
		}
		if err := e.apply(flags, f); err != nil {
			return usage(cmd, "--config %s: line %d: %s: %s", path, e.line, e.name, setReason(err))
		}
	}
	return nil
}

// entry is one setting of a file.
type entry struct {
	name   string
	line   int
	values []string
	list   bool
}

func (e entry) apply(flags *pflag.FlagSet, f *pflag.Flag) error {
	if e.list && !severalOf(f.Value) {
		return errors.New("want one value")
	}
	for _, v := range e.values {
		if err := flags.Set(e.name, v); err != nil {
			return err
		}
	}
	return nil
}

// readConfig reads a mapping of names to values, lists and mappings of values.
func readConfig(b []byte) ([]entry, error) {
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil // empty, or comments alone
	} else if err != nil {
		return nil, badYAML(err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document, or something behind the first one")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want settings, such as 'domain: demo'", root.Line)
	}
	var entries []entry
	seen := map[string]bool{}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if seen[key.Value] {
			return nil, fmt.Errorf("line %d: %q is there twice", key.Line, clip(key.Value))
		}
		seen[key.Value] = true
		e, err := readEntry(key, value)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func badYAML(err error) error {
	return errors.New(strings.TrimPrefix(oneLine(err.Error()), "yaml: "))
}

func readEntry(key, value *yaml.Node) (entry, error) {
	e := entry{name: key.Value, line: key.Line}
	var err error
	switch value.Kind {
	case yaml.ScalarNode:
		var v string
		v, err = scalar(value)
		e.values = []string{v}
	case yaml.SequenceNode:
		e.list = true
		for _, n := range value.Content {
			var v string
			if v, err = scalar(n); err != nil {
				break
			}
			e.values = append(e.values, v)
		}
	case yaml.MappingNode:
		e.list = true
		for i := 0; i < len(value.Content); i += 2 {
			var k, v string
			if k, err = scalar(value.Content[i]); err != nil {
				break
			}
			if v, err = scalar(value.Content[i+1]); err != nil {
				break
			}
			e.values = append(e.values, k+"="+v)
		}
	case yaml.AliasNode, yaml.DocumentNode:
		err = errors.New("want a value")
	}
	if err != nil {
		return e, fmt.Errorf("line %d: %s: %w", key.Line, clip(key.Value), err)
	}
	return e, nil
}

// scalar is a value as it is written. Anchors and tags would let a line say something
// that is not to be seen in it.
func scalar(n *yaml.Node) (string, error) {
	switch {
	case n.Kind != yaml.ScalarNode || n.Anchor != "":
		return "", errors.New("want a plain value")
	case n.Tag == "!!null":
		return "", errors.New("it has no value")
	case n.Style&yaml.TaggedStyle != 0:
		return "", errors.New("want a value without a tag")
	}
	return n.Value, nil
}
