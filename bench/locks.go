package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/lastword/lastword/bench/load"
)

// Columns of the workloads with locks.
var (
	cyclesPerSecond = Column{"cycles_per_second", "cycles/s"}
	p50             = Column{"p50_us", "p50"}
	p99             = Column{"p99_us", "p99"}
	longestWait     = Column{"longest_wait_us", "longest wait"}
	fairRound       = Column{"fair_round_us", "fair round"}
	unfairness      = Column{"longest_wait_by_fair_round", "longest ÷ fair"}
	handoverRate    = Column{"handovers_per_second", "hand-overs/s"}
	serverCPU       = Column{"server_cores", "server cores"}
	clientCPU       = Column{"client_cores", "client cores"}
	serverRSS       = Column{"server_rss_mb", "server MB"}
	clientRSS       = Column{"client_rss_mb", "client MB"}
	renewals        = Column{"renewals_per_second", "renewals/s"}
	lostLeases      = Column{"leases_lost", "lost"}
	takenPerSecond  = Column{"taken_per_second", "taken/s"}
)

// window is the part of an order that every workload has.
func (o Options) window(workload string, round int) load.Order {
	return load.Order{
		Workload: workload, Run: fmt.Sprintf("%s-%d", workload, round), Clients: o.Clients,
		Warm: o.Duration / 5, Duration: o.Duration,
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func cases(clients int) string {
	if clients == 1 {
		return "1 client"
	}
	return fmt.Sprint(clients, " clients")
}

// cores are what load generator and server took in the window.
func (m measured) cores(values map[string]float64) map[string]float64 {
	values[clientCPU.Name] = m.CPU.Seconds() / m.Elapsed.Seconds()
	if m.known {
		values[serverCPU.Name] = m.serverCPU
	}
	return values
}

// w1 is acquire and release of keys of one's own, durable.
func w1(ctx context.Context, o Options, c *crowd) (Report, error) {
	r := newReport("W1", "acquire and release of a key of one's own, through the network, durable", cyclesPerSecond, p50, p99, serverCPU, clientCPU)
	many := cases(o.Clients)
	for _, clients := range []int{1, o.Clients} {
		err := inTurns(c.subjects, o.Rounds, func(round int, s *subject) error {
			order := o.window(load.Cycles, round)
			order.Clients = clients
			o.Progress(fmt.Sprintf("W1 round %d of %d: %s, %s", round+1, o.Rounds, s.name, cases(clients)))
			m, err := s.measure(ctx, order)
			if err != nil {
				return err
			}
			r.add(s.name, s.version(), cases(clients), m.cores(map[string]float64{
				cyclesPerSecond.Name: m.Rate(), p50.Name: micros(m.Latency.P50), p99.Name: micros(m.Latency.P99),
			}))
			return nil
		})
		if err != nil {
			return r.Report, err
		}
	}
	for _, s := range c.subjects[1:] {
		goals := map[string]goal{etcd1: {atLeast: 3.5}, redis: {atLeast: 1.0}}
		r.ratio(many, cyclesPerSecond.Name, ours, s.name, goals[s.name])
		p99Goals := map[string]goal{etcd1: {atMost: 1}, redis: {atMost: 1}}
		r.ratio(many, p99.Name, ours, s.name, p99Goals[s.name])
		one := map[string]goal{etcd1: {atLeast: 2.5}}
		r.ratio(cases(1), cyclesPerSecond.Name, ours, s.name, one[s.name])
	}
	r.note("PostgreSQL's advisory locks are kept in memory only: an upper mark, and no peer")
	r.note("a grant of lastword is on disk before its answer; a release is answered earlier and written with what comes next, since a crash that undoes it costs waiting time only (R6)")
	return r.Report, nil
}

// work is how long a holder of W2 works.
const work = 200 * time.Microsecond

// w2 is one key that many want.
func w2(ctx context.Context, o Options, c *crowd) (Report, error) {
	r := newReport("W2", fmt.Sprintf("hand-over of one key among %d waiters whose work takes %v: from a release to another client running", o.Clients, work),
		p50, p99, longestWait, fairRound, unfairness, handoverRate, serverCPU, clientCPU)
	in := fmt.Sprint(o.Clients, " waiters")
	err := inTurns(c.subjects, o.Rounds, func(round int, s *subject) error {
		order := o.window(load.Handovers, round)
		order.Work = work
		o.Progress(fmt.Sprintf("W2 round %d of %d: %s", round+1, o.Rounds, s.name))
		m, err := s.measure(ctx, order)
		if err != nil {
			return err
		}
		values := map[string]float64{
			p50.Name: micros(m.Latency.P50), p99.Name: micros(m.Latency.P99), longestWait.Name: micros(m.LongestWait),
			fairRound.Name: micros(m.FairRound(o.Clients)), handoverRate.Name: m.Rate(),
		}
		if fair := m.FairRound(o.Clients); fair > 0 {
			values[unfairness.Name] = float64(m.LongestWait) / float64(fair)
		}
		r.add(s.name, s.version(), in, m.cores(values))
		return nil
	})
	if err != nil {
		return r.Report, err
	}
	for _, s := range c.subjects[1:] {
		goals := map[string]goal{etcd1: {atMost: 0.25}, postgresql: {atMost: 1.5}}
		r.ratio(in, p50.Name, ours, s.name, goals[s.name])
		p99Goals := map[string]goal{etcd1: {atMost: 0.25}}
		r.ratio(in, p99.Name, ours, s.name, p99Goals[s.name])
		r.ratio(in, longestWait.Name, ours, s.name, goal{})
	}
	if row := r.find(ours, in); row != nil {
		r.Ratios = append(r.Ratios, Ratio{
			Case: in, Of: longestWait.Name, Subject: ours, Against: "the fair round", Ratio: row.Values[unfairness.Name], AtMost: 1.5,
		})
	}
	r.note(fmt.Sprintf("the fair round is what a waiter waits where each has its turn: %d times the mean time from one hand-over to the next, the holder's work included", o.Clients))
	r.note("redislock polls, every 4 ms here (its documentation shows 100 ms), and knows no order")
	return r.Report, nil
}

// w7 is leases that are kept alive.
func w7(ctx context.Context, o Options, c *crowd) (Report, error) {
	r := newReport("W7", fmt.Sprintf("live leases of %v, renewed every %v", o.LeaseTTL, o.LeaseTTL/3),
		renewals, lostLeases, serverCPU, serverRSS, clientCPU, clientRSS, takenPerSecond)
	for i, n := range o.Leases {
		sides := []*subject{c.subjects[0]}
		for _, s := range c.subjects[1:] {
			if s.leases && i == 0 { // a peer at the first number only
				sides = append(sides, s)
			}
		}
		in := fmt.Sprint(n, " leases")
		gaveUp := map[*subject]bool{}
		err := inTurns(sides, o.Rounds, func(round int, s *subject) error {
			if gaveUp[s] {
				return nil
			}
			o.Progress(fmt.Sprintf("W7 round %d of %d: %s, %s", round+1, o.Rounds, s.name, in))
			m, err := s.measure(ctx, o.liveLeases(round, n))
			if err != nil {
				return err
			}
			if m.GaveUp {
				gaveUp[s] = true
				r.note(fmt.Sprintf("%s could not take and hold %s within %v", s.name, in, takeWithin))
				return s.again(ctx, o)
			}
			r.add(s.name, s.version(), in, m.live(n))
			return nil
		})
		if err != nil {
			return r.Report, err
		}
		r.ratio(in, serverCPU.Name, ours, etcd1, goal{})
		r.ratio(in, serverRSS.Name, ours, etcd1, goal{})
	}
	r.note("a renewal of lastword is durable before it is answered; etcd's KeepAlive is not: it extends the lease in the leader's memory")
	return r.Report, nil
}

// takeWithin bounds the taking of live leases: those that are taken are renewed
// meanwhile, and a machine that has no time left for more never comes to an end.
const takeWithin = 2 * time.Minute

func (o Options) liveLeases(round, n int) load.Order {
	order := o.window(load.LiveLeases, round)
	order.Leases, order.TTL, order.Limit = n, o.LeaseTTL, takeWithin
	order.Duration = max(order.Duration, o.LeaseTTL/3) // each is renewed once
	return order
}

func (m measured) live(n int) map[string]float64 {
	values := map[string]float64{
		renewals.Name: m.Rate(), lostLeases.Name: float64(m.Lost), takenPerSecond.Name: float64(n) / m.Took.Seconds(),
	}
	if m.known {
		values[serverRSS.Name], values[clientRSS.Name] = float64(m.serverRSS)/1e6, float64(m.clientRSS)/1e6
	}
	return m.cores(values)
}

// w3 is the authority inside the process against the disk's limit.
func w3(ctx context.Context, o Options, c *crowd) (Report, error) {
	r := newReport("W3", fmt.Sprintf("the authority inside the process, %d goroutines, durable", o.Clients), cyclesPerSecond, p50, p99, clientCPU)
	in := fmt.Sprint(o.Clients, " goroutines")
	err := inTurns(c.subjects, o.Rounds, func(round int, s *subject) error {
		o.Progress(fmt.Sprintf("W3 round %d of %d: %s", round+1, o.Rounds, s.name))
		m, err := s.measure(ctx, o.window(load.Cycles, round))
		if err != nil {
			return err
		}
		r.add(s.name, "", in, m.cores(map[string]float64{
			cyclesPerSecond.Name: m.Rate(), p50.Name: micros(m.Latency.P50), p99.Name: micros(m.Latency.P99),
		}))
		return nil
	})
	r.ratio(in, cyclesPerSecond.Name, inside, bareLoop, goal{atLeast: 0.8})
	r.ratio(in, cyclesPerSecond.Name, insideHolders, bareLoop, goal{})
	r.note("the bare loop writes the same rows into the same tables and commits all that wait at once; it decides, signs and remembers nothing; its second write, too, is on disk before its answer, which lastword's release is not (R6)")
	return r.Report, err
}

// Sides of W3, which are load generators alone.
const (
	inside        = "lastword, embedded"
	insideHolders = "lastword, embedded, with package client"
	bareLoop      = "bare group commit"
)
