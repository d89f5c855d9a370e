package identity

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lastword/lastword"
)

// Action is what a caller wants to do.
type Action string

// The actions. Whoever may acquire a resource may also see its status.
const (
	Acquire Action = "acquire"
	Status  Action = "status"
	List    Action = "list"
	Watch   Action = "watch"
	Revoke  Action = "revoke"
)

// MaxGeneration is the highest generation of a policy, 2^53 − 1.
const MaxGeneration = uint64(lastword.MaxToken)

// Policy says who may do what. What no rule allows is refused. It never changes, and is
// safe for concurrent use.
//
// It is one YAML mapping:
//
//	generation: 7
//	rules:
//	  - who: spiffe://example.org/jobs/     # every identity below jobs
//	    acquire: [reports/, nightly]        # everything below reports, and nightly itself
//	    classes: [write]                    # the operation classes; write if left out
//	  - who: spiffe://example.org/ops/ann
//	    status: /
//	    list: /
//	    watch: /
//	    revoke: [reports/]
//
// A name that ends in a slash stands for all that begins with it, segment by segment:
// "reports/" is what is below reports, neither reports itself nor reports2/a. "/" is
// every resource. Any other name stands for itself. No other character has a special
// meaning. Rules only allow; their order does not matter.
type Policy struct {
	generation uint64
	callers    table[*caller]
	text       string // all of it, in one spelling
}

// caller is what one name of a policy may do.
type caller struct {
	classes map[lastword.Class]*table[struct{}] // to acquire
	may     map[Action]*table[struct{}]
}

// ParsePolicy reads a policy. The error has [lastword.CodeInvalid] and names the line.
func ParsePolicy(text []byte) (*Policy, error) {
	members, err := yamlMapping(text)
	if err != nil {
		return nil, badPolicy(err)
	}
	p := &Policy{}
	var rules *yaml.Node
	for _, m := range members {
		switch m.name {
		case "generation":
			p.generation, err = generation(m)
		case "rules":
			rules = m.value
		default:
			err = fmt.Errorf("line %d: %q is no member of a policy: want generation and rules", m.line, clip(m.name))
		}
		if err != nil {
			return nil, badPolicy(err)
		}
	}
	switch {
	case p.generation == 0:
		return nil, badPolicy(fmt.Errorf("it has no generation: want a number that grows with every change"))
	case rules == nil || rules.Kind != yaml.SequenceNode || fancy(rules):
		return nil, badPolicy(fmt.Errorf("it has no list of rules; with 'rules: []' nobody may do anything"))
	}
	var lines []string
	for _, n := range rules.Content {
		line, err := p.add(n)
		if err != nil {
			return nil, badPolicy(err)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	p.text = fmt.Sprintf("%d\n%s", p.generation, strings.Join(lines, "\n"))
	return p, nil
}

func badPolicy(err error) error { return invalid("policy: %v", err) }

func generation(m member) (uint64, error) {
	s, err := yamlText(m.value)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || n > MaxGeneration || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("line %d: generation %q: want a number from 1 to %d", m.line, clip(s), MaxGeneration)
	}
	return n, nil
}

// rule is one of the file, before it is taken in.
type rule struct {
	who     string
	names   map[Action][]string
	classes []string
}

// add takes a rule in and returns it in one spelling.
func (p *Policy) add(n *yaml.Node) (string, error) {
	r, err := readRule(n)
	if err != nil {
		return "", err
	}
	c, known := p.callers.get(r.who)
	if !known {
		c = &caller{classes: map[lastword.Class]*table[struct{}]{}, may: map[Action]*table[struct{}]{}}
		p.callers.put(r.who, c)
	}
	line := strconv.Quote(r.who)
	for _, action := range []Action{Acquire, Status, List, Watch, Revoke} {
		names := slices.Sorted(slices.Values(r.names[action]))
		line += fmt.Sprintf(" %s %q", action, names)
		for _, name := range names {
			if c.may[action] == nil {
				c.may[action] = &table[struct{}]{}
			}
			c.may[action].put(name, struct{}{})
		}
	}
	for _, class := range r.classes {
		t := c.classes[lastword.Class(class)]
		if t == nil {
			t = &table[struct{}]{}
			c.classes[lastword.Class(class)] = t
		}
		for _, name := range r.names[Acquire] {
			t.put(name, struct{}{})
		}
	}
	return line + fmt.Sprintf(" classes %q", slices.Sorted(slices.Values(r.classes))), nil
}

func readRule(n *yaml.Node) (rule, error) {
	r := rule{names: map[Action][]string{}}
	members, err := membersOf(n)
	if err != nil {
		return r, err
	}
	for _, m := range members {
		switch m.name {
		case "who":
			if r.who, err = yamlText(m.value); err == nil {
				err = at(m, checkWho(r.who))
			}
		case "classes":
			if r.classes, err = yamlList(m.value); err == nil {
				err = at(m, checkClasses(r.classes))
			}
		case string(Acquire), string(Status), string(List), string(Watch), string(Revoke):
			if r.names[Action(m.name)], err = yamlList(m.value); err == nil {
				err = at(m, checkNames(r.names[Action(m.name)]))
			}
		default:
			err = fmt.Errorf("line %d: %q is no member of a rule: want who, acquire, classes, status, list, watch and revoke", m.line, clip(m.name))
		}
		if err != nil {
			return r, err
		}
	}
	switch {
	case r.who == "":
		return r, fmt.Errorf("line %d: the rule does not say who", n.Line)
	case len(r.classes) > 0 && len(r.names[Acquire]) == 0:
		return r, fmt.Errorf("line %d: the rule has classes, and nothing to acquire", n.Line)
	case len(members) == 1:
		return r, fmt.Errorf("line %d: the rule allows nothing", n.Line)
	case len(r.classes) == 0 && len(r.names[Acquire]) > 0:
		r.classes = []string{string(lastword.ClassWrite)}
	}
	return r, nil
}

func at(m member, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("line %d: %s: %w", m.line, m.name, err)
}

// checkWho: a SPIFFE id, one of a trust domain or path with a slash behind it, or the
// name of a token.
func checkWho(s string) error {
	if strings.HasPrefix(s, "spiffe://") {
		head, below := strings.CutSuffix(s, "/")
		if domain := strings.TrimPrefix(head, "spiffe://"); below && !strings.Contains(domain, "/") {
			return plain(CheckDomain(domain))
		}
		return plain(CheckID(head))
	}
	if strings.ContainsAny(s, "*?") {
		return fmt.Errorf("%q: want a name, or one with a slash behind it for all below", clip(s))
	}
	return plain(lastword.CheckID("name", s))
}

func checkNames(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("the list is empty")
	}
	for _, s := range names {
		if s == "/" {
			continue
		}
		if _, err := lastword.ParseResource(strings.TrimSuffix(s, "/")); err != nil {
			return plain(err)
		}
	}
	return nil
}

func checkClasses(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("the list is empty")
	}
	for _, s := range names {
		if err := lastword.CheckID("class", s); err != nil {
			return plain(err)
		}
	}
	return nil
}

// plain is an error's message without its code.
func plain(err error) error {
	if e, ok := err.(*lastword.Error); ok && e != nil { //nolint:errorlint // never wrapped here
		return fmt.Errorf("%s", e.Message)
	}
	return err
}

// Generation grows with every change of what is allowed, and enters the grants (T26).
func (p *Policy) Generation() uint64 { return p.generation }

// Digest is of all that the policy says, however it is spelled.
func (p *Policy) Digest() lastword.Digest { return lastword.Digest(sha256.Sum256([]byte(p.text))) }

// Admit reports whether owner may hold resource for this class; "" is
// [lastword.ClassWrite].
func (p *Policy) Admit(owner string, resource lastword.Resource, class lastword.Class) (generation uint64, ok bool) {
	if class == "" {
		class = lastword.ClassWrite
	}
	p.callers.each(owner, func(c *caller) bool {
		ok = c.classes[class].covers(string(resource))
		return ok
	})
	return p.generation, ok
}

// May reports whether caller may do this to what name names: for [List] and [Watch] the
// prefix of what is asked for, all of which has to be allowed by one name of a rule;
// else a resource. What may be acquired, for any class, may also be seen with [Status].
func (p *Policy) May(who string, action Action, name string) (ok bool) {
	p.callers.each(who, func(c *caller) bool {
		switch action {
		case List, Watch:
			// "reports" as a prefix is reports2, too: only a name with a slash behind it
			// can cover a prefix.
			ok = c.may[action].coversBelow(name)
		case Status:
			ok = c.may[Status].covers(name) || c.may[Acquire].covers(name)
		case Acquire, Revoke:
			ok = c.may[action].covers(name)
		}
		return ok
	})
	return ok
}

// table finds names: those that stand for themselves, and those with a slash behind
// them that stand for what is below. A look costs one step for each segment, however
// many names there are.
type table[V any] struct {
	exact, below map[string]V
	all          *V // of "/"
}

func (t *table[V]) put(name string, v V) {
	switch {
	case name == "/":
		t.all = &v
	case strings.HasSuffix(name, "/"):
		if t.below == nil {
			t.below = map[string]V{}
		}
		t.below[name] = v
	default:
		if t.exact == nil {
			t.exact = map[string]V{}
		}
		t.exact[name] = v
	}
}

// get is the value of exactly this name.
func (t *table[V]) get(name string) (v V, ok bool) {
	switch {
	case name == "/":
		if t.all != nil {
			return *t.all, true
		}
		return v, false
	case strings.HasSuffix(name, "/"):
		v, ok = t.below[name]
	default:
		v, ok = t.exact[name]
	}
	return v, ok
}

// each calls do with every value that stands for name, until it returns true.
func (t *table[V]) each(name string, do func(V) (enough bool)) {
	if t == nil {
		return
	}
	if t.all != nil && do(*t.all) {
		return
	}
	if v, ok := t.exact[name]; ok && do(v) {
		return
	}
	t.eachBelow(name, len(name)-1, do)
}

// eachBelow looks at the slashes before end.
func (t *table[V]) eachBelow(name string, end int, do func(V) bool) {
	if len(t.below) == 0 {
		return
	}
	for i := range end {
		if name[i] != '/' {
			continue
		}
		if v, ok := t.below[name[:i+1]]; ok && do(v) {
			return
		}
	}
}

func (t *table[V]) covers(name string) (ok bool) {
	t.each(name, func(V) bool { ok = true; return true })
	return ok
}

// coversBelow reports whether everything that begins with prefix is covered.
func (t *table[V]) coversBelow(prefix string) (ok bool) {
	if t == nil {
		return false
	}
	if t.all != nil {
		return true
	}
	t.eachBelow(prefix, len(prefix), func(V) bool { ok = true; return true })
	return ok
}
