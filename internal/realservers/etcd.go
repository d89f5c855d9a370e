package realservers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
)

// Etcd starts a cluster of 1 or 3 members, each a process of its own with etcd's
// defaults. Addr and DSN are the members' client addresses, divided by commas. The
// program is built from the nested module ([Peers]); there is no package of it that is
// recent enough.
func Etcd(ctx context.Context, members int, cfg Config) (*Server, error) {
	if members < 1 || members > 7 {
		return nil, fmt.Errorf("%d members of etcd: want 1 to 7", members)
	}
	if len(cfg.Settings) > 0 {
		return nil, errors.New("etcd takes no settings here")
	}
	programs, err := Peers(ctx)
	if err != nil {
		return nil, err
	}
	for range attempts {
		var s *Server
		if s, err = etcd(ctx, programs.EtcdMember, members, cfg); err == nil {
			return s, nil
		}
		if !errors.Is(err, errEnded) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func etcd(ctx context.Context, path string, members int, cfg Config) (_ *Server, err error) {
	dir, err := makeDirectory(cfg.Dir, "etcd", nil)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: "etcd", dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	ports, err := freePorts(2 * members)
	if err != nil {
		return nil, err
	}
	url := func(port int) string { return "http://" + address(port) }
	var cluster, clients []string
	for i := range members {
		clients = append(clients, address(ports[i]))
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, url(ports[members+i])))
	}
	for i := range members {
		member, err := json.Marshal(map[string]string{
			"name": fmt.Sprintf("m%d", i), "dir": filepath.Join(dir.path, fmt.Sprintf("m%d", i)),
			"client": url(ports[i]), "peer": url(ports[members+i]), "cluster": strings.Join(cluster, ","),
		})
		if err != nil {
			return nil, err
		}
		p, err := Start(Command{Path: path, Args: []string{string(member)}, Talk: true})
		if err != nil {
			return nil, err
		}
		s.processes = append(s.processes, p)
	}
	s.Addr = strings.Join(clients, ",")
	s.DSN = s.Addr
	s.Version, err = await(ctx, s, func(ctx context.Context) (version string, err error) {
		for _, client := range clients {
			if version, err = askEtcd(ctx, client); err != nil {
				return "", err
			}
		}
		return version, nil
	})
	return s, err
}

// askEtcd asks for the member's health, which is a read by quorum.
func askEtcd(ctx context.Context, addr string) (string, error) {
	var health struct{ Health, Reason string }
	if err := getJSON(ctx, "http://"+addr+"/health", &health); err != nil {
		return "", err
	}
	if health.Health != "true" {
		return "", fmt.Errorf("etcd at %s is not healthy: %s", addr, health.Reason)
	}
	var version struct {
		Server string `json:"etcdserver"`
	}
	err := getJSON(ctx, "http://"+addr+"/version", &version)
	return version.Server, err
}

func getJSON(ctx context.Context, url string, to any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Close = true // nothing stays behind
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return json.NewDecoder(answer.Body).Decode(to)
}
