package lastword_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/lastword/lastword"
)

// wantInvalid checks what every parser owes: INVALID and nothing else, one short
// line in lower case that a person can act on.
func wantInvalid(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("got error %v, want INVALID", err)
	}
	if errors.Is(err, lastword.ErrUnknownOutcome) {
		t.Errorf("%v: a refused value leaves nothing open", err)
	}
	var e *lastword.Error
	if !errors.As(err, &e) {
		t.Fatalf("got a %T, want *lastword.Error", err)
	}
	checkLine(t, e.Message)
}

func checkLine(t *testing.T, message string) {
	t.Helper()
	switch {
	case message == "":
		t.Error("the message is empty")
	case strings.ContainsFunc(message, unicode.IsControl):
		t.Errorf("the message is not one clean line: %q", message)
	case len(message) > 512:
		t.Errorf("the message has %d bytes: it repeats what the caller sent", len(message))
	case unicode.IsUpper(rune(message[0])):
		t.Errorf("the message begins in upper case: %q", message)
	case strings.HasSuffix(message, "."):
		t.Errorf("the message ends with a full stop: %q", message)
	}
}
