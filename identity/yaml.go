package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What is read of YAML is what stands there: no anchor, no alias, no tag, no second
// document, and no name that comes twice. Every scalar is text, so that YAML's own
// ideas of numbers and truth do not matter.

// member is one line of a mapping.
type member struct {
	name  string
	line  int
	value *yaml.Node
}

// yamlMapping reads a text that is one mapping. An empty one has no members.
func yamlMapping(text []byte) ([]member, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, errors.New(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: "))
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document, or something behind the first one")
	}
	return membersOf(doc.Content[0])
}

func membersOf(n *yaml.Node) ([]member, error) {
	if n.Kind != yaml.MappingNode || fancy(n) {
		return nil, fmt.Errorf("line %d: want names with values", n.Line)
	}
	var list []member
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		name, err := yamlText(n.Content[i])
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, fmt.Errorf("line %d: %q is there twice", n.Content[i].Line, clip(name))
		}
		seen[name] = true
		list = append(list, member{name, n.Content[i].Line, n.Content[i+1]})
	}
	return list, nil
}

// yamlList reads a list of texts. One text alone is a list of one.
func yamlList(n *yaml.Node) ([]string, error) {
	if n.Kind == yaml.ScalarNode {
		s, err := yamlText(n)
		return []string{s}, err
	}
	if n.Kind != yaml.SequenceNode || fancy(n) {
		return nil, fmt.Errorf("line %d: want a list", n.Line)
	}
	var list []string
	for _, c := range n.Content {
		s, err := yamlText(c)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func yamlText(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Tag == "!!merge" || fancy(n) {
		return "", fmt.Errorf("line %d: want a plain value", n.Line)
	}
	return n.Value, nil
}

// fancy: an anchor or a tag would let a line say something that is not to be seen in it.
func fancy(n *yaml.Node) bool { return n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 }
