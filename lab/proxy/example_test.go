package proxy_test

import (
	"fmt"
	"io"
	"net"

	"github.com/lastword/lastword/lab/proxy"
)

func ExampleProxy_Block() {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer target.Close()
	go func() {
		if c, err := target.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	p, err := proxy.New(target.Addr().String())
	if err != nil {
		panic(err)
	}
	defer p.Close()

	block := p.Block(proxy.Answers)
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "hello")
	<-block.Kept() // the target has answered, and nobody hears it
	block.Heal()
	heard := make([]byte, 5)
	_, _ = io.ReadFull(c, heard)
	fmt.Println(string(heard))
	// Output: hello
}
