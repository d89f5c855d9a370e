package main

import (
	"fmt"
	"time"

	"github.com/lastword/lastword"
)

// The values of flags. Each refuses what its parser refuses, before anything is done.

// outputFlag is -o.
type outputFlag struct{ json *bool }

func (f *outputFlag) String() string {
	if f.json != nil && *f.json {
		return "json"
	}
	return "text"
}
func (f *outputFlag) Type() string { return "FORMAT" }
func (f *outputFlag) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("%q: want text or json", clip(s))
	}
	*f.json = s == "json"
	return nil
}

// durationFlag is a duration within bounds (KF-20).
type durationFlag struct {
	value       *time.Duration
	least, most time.Duration
}

func (f *durationFlag) String() string {
	if f.value == nil {
		return ""
	}
	return f.value.String()
}
func (f *durationFlag) Type() string { return "DURATION" }
func (f *durationFlag) Set(s string) error {
	d, err := lastword.ParseDuration(s)
	if err != nil {
		return err
	}
	if d < f.least || d > f.most {
		return fmt.Errorf("%s: want %s to %s", clip(s), f.least, f.most)
	}
	*f.value = d
	return nil
}

// idFlag is an owner, request id, lease id, class, domain or operation id.
type idFlag struct {
	what  string
	value *string
}

func (f *idFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}
func (f *idFlag) Type() string { return "ID" }
func (f *idFlag) Set(s string) error {
	if err := lastword.CheckID(f.what, s); err != nil {
		return err
	}
	*f.value = s
	return nil
}

// digestFlag is a digest.
type digestFlag struct{ value *lastword.Digest }

func (f *digestFlag) String() string {
	if f.value == nil {
		return ""
	}
	return f.value.String()
}
func (f *digestFlag) Type() string { return "DIGEST" }
func (f *digestFlag) Set(s string) (err error) {
	*f.value, err = lastword.ParseDigest(s)
	return err
}

// seqFlag is the number of a write: spelled as a fence is, 1 to 2^53 − 1.
type seqFlag struct{ value *uint64 }

func (f *seqFlag) String() string { return "" }
func (f *seqFlag) Type() string   { return "N" }
func (f *seqFlag) Set(s string) error {
	t, err := lastword.ParseToken(s)
	if err != nil {
		return fmt.Errorf("%q: want a decimal number from 1 to %d", clip(s), lastword.MaxToken)
	}
	*f.value = uint64(t)
	return nil
}

// choiceFlag is one of a few words.
type choiceFlag struct {
	value  *string
	choice []string
}

func (f *choiceFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}
func (f *choiceFlag) Type() string { return "WORD" }
func (f *choiceFlag) Set(s string) error {
	for _, c := range f.choice {
		if s == c {
			*f.value = s
			return nil
		}
	}
	return fmt.Errorf("%q: want one of %q", clip(s), f.choice)
}
