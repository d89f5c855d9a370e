package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword/lab/proxy"
)

// echo answers each line with the same line, and tells of each one that arrived.
func echo(t *testing.T, name string) (addr string, arrived chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	arrived = make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					arrived <- lines.Text()
					_, _ = io.WriteString(c, name+" "+lines.Text()+"\n")
				}
			}()
		}
	}()
	return l.Addr().String(), arrived
}

func between(t *testing.T, target string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

type caller struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func call(t *testing.T, p *proxy.Proxy) *caller {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &caller{t, c, bufio.NewReader(c)}
}

func (c *caller) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *caller) hear() string {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// silent reports whether nothing is heard for a while.
func (c *caller) silent() bool {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	_, err := c.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func TestBlockedAnswersAreKeptBackAndComeAfterwards(t *testing.T) {
	t.Parallel()
	addr, arrived := echo(t, "a")
	p := between(t, addr)
	c := call(t, p)
	c.say("1")
	if got := c.hear(); got != "a 1" {
		t.Fatalf("got %q", got)
	}
	<-arrived
	block := p.Block(proxy.Answers)
	c.say("2")
	if got := <-arrived; got != "2" {
		t.Errorf("the question did not arrive: %q", got)
	}
	<-block.Kept() // the target has answered
	if !c.silent() {
		t.Error("an answer came through")
	}
	later := call(t, p)
	later.say("3")
	if <-arrived; !later.silent() {
		t.Error("a link that was made later is not blocked")
	}
	p.Heal()
	if a, b := c.hear(), later.hear(); a != "a 2" || b != "a 3" {
		t.Errorf("after healing: %q and %q", a, b)
	}
}

func TestBlockedAsksDoNotArrive(t *testing.T) {
	t.Parallel()
	addr, arrived := echo(t, "a")
	p := between(t, addr)
	c := call(t, p)
	p.Block(proxy.Asks)
	c.say("1")
	if !c.silent() || len(arrived) > 0 {
		t.Error("it arrived")
	}
	p.Heal()
	if got := c.hear(); got != "a 1" {
		t.Errorf("got %q", got)
	}
}

func TestCutAnswersAreLost(t *testing.T) {
	t.Parallel()
	addr, arrived := echo(t, "a")
	p := between(t, addr)
	c := call(t, p)
	block := p.Block(proxy.Answers)
	c.say("1")
	<-arrived
	<-block.Kept()
	p.Cut()
	block.Heal()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if line, err := c.in.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestNewLinksGoToTheNewTarget(t *testing.T) {
	t.Parallel()
	first, _ := echo(t, "a")
	second, _ := echo(t, "b")
	p := between(t, first)
	c := call(t, p)
	c.say("1")
	c.hear()
	p.SetTarget(second)
	later := call(t, p)
	c.say("2")
	later.say("2")
	if a, b := c.hear(), later.hear(); a != "a 2" || b != "b 2" {
		t.Errorf("got %q and %q", a, b)
	}
}

func TestSlowLinksAreLate(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t, "a")
	p := between(t, addr)
	c := call(t, p)
	const late = 40 * time.Millisecond
	p.Slow(func() time.Duration { return late })
	began := time.Now()
	c.say("1")
	c.hear()
	if took := time.Since(began); took < 2*late {
		t.Errorf("there and back in %v", took)
	}
	p.Slow(nil)
}

func TestOneBlockHealedLeavesTheOther(t *testing.T) {
	t.Parallel()
	addr, arrived := echo(t, "a")
	p := between(t, addr)
	c := call(t, p)
	one, two := p.Block(proxy.Both), p.Block(proxy.Asks)
	c.say("1")
	one.Heal()
	one.Heal()
	if !c.silent() || len(arrived) > 0 {
		t.Error("it arrived")
	}
	two.Heal()
	if got := c.hear(); got != "a 1" {
		t.Errorf("got %q", got)
	}
}
