// Command etcdmember is one member of an etcd cluster, for tests and benchmarks:
// etcd's own server, embedded, with its defaults, on loopback.
//
// # Guarantees
//
// It ends with its standard input, so that it outlives nobody who started it.
//
// # Not guaranteed
//
// It is no way to run etcd for anything that is to be kept.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

// member is what to run, as JSON on the command line.
type member struct {
	Name    string `json:"name"`
	Dir     string `json:"dir"`
	Client  string `json:"client"`  // URL
	Peer    string `json:"peer"`    // URL
	Cluster string `json:"cluster"` // name=URL,…
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "etcdmember:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("want one argument: the member as JSON")
	}
	var m member
	if err := json.Unmarshal([]byte(os.Args[1]), &m); err != nil {
		return err
	}
	client, err := url.Parse(m.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(m.Peer)
	if err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = m.Name, m.Dir, m.Cluster
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.LogLevel, cfg.LogOutputs = "error", []string{"stderr"}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	select {
	case <-over:
		return nil
	case err := <-e.Err():
		return err
	}
}
