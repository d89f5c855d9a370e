package main

import (
	"net/url"
	"regexp"
	"strings"
)

// isPostgres reports whether dsn is a URL of a PostgreSQL; the case of a scheme is nothing.
func isPostgres(dsn string) bool {
	scheme, _, ok := strings.Cut(dsn, "://")
	return ok && (strings.EqualFold(scheme, "postgres") || strings.EqualFold(scheme, "postgresql"))
}

// public are the parameters of a PostgreSQL's URL that may be shown.
var public = []string{"host", "port", "user", "dbname", "sslmode", "connect_timeout", "application_name", "target_session_attrs", "default_query_exec_mode", "search_path"}

// shown is a database as it may be shown, whatever was given: nothing of what could be a
// password. What is no URL that is understood as a whole is shown by its scheme alone.
func shown(dsn string) string {
	if isPostgres(dsn) {
		return shownPostgres(dsn)
	}
	scheme, rest, ok := strings.Cut(dsn, ":")
	switch {
	case !ok && !strings.ContainsAny(dsn, "=@ \t\n"):
		return dsn // a path
	case ok && strings.EqualFold(scheme, "sqlite") && !strings.HasPrefix(rest, "//"):
		path, _, more := strings.Cut(rest, "?")
		if more {
			path += "?…"
		}
		return scheme + ":" + path
	case ok && plainScheme.MatchString(scheme):
		return scheme + ":…"
	}
	return "…"
}

var plainScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]{0,15}$`)

func shownPostgres(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil || strings.Contains(u.EscapedPath()+u.RawQuery+u.Fragment, "@") { // it may be in the middle of a password
		return "postgres://…"
	}
	q, kept := u.Query(), url.Values{}
	for _, name := range public {
		if q.Has(name) {
			kept[name] = q[name]
		}
	}
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = kept.Encode(), false, "", ""
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	return u.String()
}

// Secrets of databases in any text.
var (
	userInfo = regexp.MustCompile(`//[^\s/"'@:]*:[^\s"']*@`)
	secret   = regexp.MustCompile(`(?i)((?:ssl)?password|passwd|pwd)(\s*=\s*)('[^']*'|[^\s"'&;]+)`)
)

// harmless is a text without what looks like the password of a database: a DSN may be given
// where something else is wanted, and come back in the error about that.
func harmless(text string) string {
	return secret.ReplaceAllString(userInfo.ReplaceAllString(text, "//…@"), "$1$2…")
}
