package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/lastword/lastword/bench/load"
	"github.com/lastword/lastword/internal/realservers"
)

// driver is a load generator in a process of its own.
type driver struct {
	process *realservers.Process
	lines   chan load.Line
	readErr error // why lines was closed
	say     *json.Encoder
}

func startDriver(ctx context.Context, path string, args ...string) (*driver, error) {
	p, err := realservers.Start(realservers.Command{Path: path, Args: args, Talk: true})
	if err != nil {
		return nil, err
	}
	d := &driver{process: p, lines: make(chan load.Line, 4), say: json.NewEncoder(p.In)}
	go d.read()
	line, err := d.hear(ctx)
	if err == nil && !line.Ready {
		err = fmt.Errorf("it says %+v before it is ready", line)
	}
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *driver) read() {
	defer close(d.lines)
	lines := bufio.NewScanner(d.process.Out)
	for lines.Scan() {
		var l load.Line
		if d.readErr = json.Unmarshal(lines.Bytes(), &l); d.readErr != nil {
			return
		}
		d.lines <- l
	}
	d.readErr = lines.Err()
}

func (d *driver) hear(ctx context.Context) (load.Line, error) {
	select {
	case l, ok := <-d.lines:
		if !ok {
			<-d.process.Gone()
			return l, fmt.Errorf("the load generator ended: %w: %s", errors.Join(d.readErr, io.ErrUnexpectedEOF), d.process.Output())
		}
		return l, nil
	case <-ctx.Done():
		return load.Line{}, context.Cause(ctx)
	}
}

// run gives an order; began is called when its window begins.
func (d *driver) run(ctx context.Context, o load.Order, began func()) (load.Figures, error) {
	if err := d.say.Encode(o); err != nil {
		return load.Figures{}, fmt.Errorf("the load generator takes no orders: %w: %s", err, d.process.Output())
	}
	for {
		l, err := d.hear(ctx)
		switch {
		case err != nil:
			return load.Figures{}, err
		case l.Failed != "":
			return load.Figures{}, errors.New(l.Failed)
		case l.Figures != nil:
			return *l.Figures, nil
		case l.Began && began != nil:
			began()
		}
	}
}

func (d *driver) stop() error {
	err := d.process.Stop() // ends the input, and with it the process and its output
	for range d.lines {     // so that the reader is not kept from ending
	}
	return err
}
