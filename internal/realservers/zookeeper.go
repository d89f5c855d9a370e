package realservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ZooKeeper starts one server, standalone, which syncs its log before every answer,
// as is its default. Its package is zookeeper.
func ZooKeeper(ctx context.Context, cfg Config) (*Server, error) {
	jar, err := program("zookeeper", "zookeeper", "/usr/share/java/zookeeper.jar")
	if err != nil {
		return nil, err
	}
	java, err := program("zookeeper", "default-jre-headless", "/usr/bin/java")
	if err != nil {
		return nil, err
	}
	return start(ctx, cfg, launch{
		name: "zookeeper", ports: 1,
		command: func(dir string, ports []int) (Command, error) {
			settings := append([]string{
				"dataDir=" + dir, fmt.Sprintf("clientPort=%d", ports[0]), "clientPortAddress=127.0.0.1",
				"tickTime=2000", "maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=srvr",
			}, cfg.Settings...)
			file := filepath.Join(dir, "zoo.cfg")
			if err := os.WriteFile(file, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
				return Command{}, err
			}
			// As zkServer.sh runs it, with Debian's class path.
			return Command{Path: java, Dir: dir, Args: []string{
				"-Xmx1000m", "-cp", dir + ":" + jar + ":/usr/share/java/zookeeper-jute.jar",
				"-Dzookeeper.log.dir=" + dir, "-Dlog4j.configuration=", "-Dlog4j.defaultInitOverride=true",
				"org.apache.zookeeper.server.quorum.QuorumPeerMain", file,
			}}, nil
		},
		ready: func(ctx context.Context, ports []int) (string, error) { return askZooKeeper(ctx, address(ports[0])) },
	})
}

func askZooKeeper(ctx context.Context, addr string) (version string, err error) {
	err = talk(ctx, addr, func(conn net.Conn) error {
		if _, err := fmt.Fprint(conn, "srvr"); err != nil {
			return err
		}
		said, err := io.ReadAll(conn)
		if err != nil {
			return err
		}
		if !strings.Contains(string(said), "\nMode: ") { // until then it serves nobody
			return fmt.Errorf("the answer to srvr is %q", said)
		}
		first, _, _ := strings.Cut(string(said), "\n") // "Zookeeper version: 3.8.0-…, built on …"
		_, rest, ok := strings.Cut(first, ": ")
		if !ok {
			return errors.New("it does not tell its version")
		}
		version, _, _ = strings.Cut(rest, "-")
		return nil
	})
	return version, err
}
