package rpc

import (
	"context"
	"math"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

var opList = operation{"list", false}

// List implements the service.
func (s *service) List(ctx context.Context, m *wire.ListRequest) (*wire.ListResponse, error) {
	read := func() (lastword.ListQuery, error) {
		if err := s.identify(ctx, new(string), false); err != nil {
			return lastword.ListQuery{}, err
		}
		q, err := listQuery(m)
		if err == nil {
			err = s.allow(ctx, identity.List, m.GetPrefix())
		}
		return q, err
	}
	return handle(ctx, s, opList, "", read, func(q lastword.ListQuery) (*wire.ListResponse, error) {
		page, err := s.authority.List(ctx, q)
		a := &wire.ListResponse{Next: string(page.Next)}
		for i := range page.Resources {
			a.Resources = append(a.Resources, SightMessage(page.Resources[i]))
		}
		return a, err
	})
}

// List implements [Authority]. More than [lastword.MaxPage] asks for MaxPage.
func (c *Client) List(ctx context.Context, query lastword.ListQuery) (lastword.Page, error) {
	q := question{op: opList}
	if query.Limit < 0 {
		return lastword.Page{}, q.refused(invalid("limit %d: it is negative", query.Limit))
	}
	m := &wire.ListRequest{Prefix: query.Prefix, After: string(query.After), Limit: count(query.Limit), All: query.All}
	if _, err := listQuery(m); err != nil {
		return lastword.Page{}, q.refused(err)
	}
	return ask(ctx, c, q, func(ctx context.Context) (lastword.Page, error) {
		a, err := c.calls.List(ctx, m)
		if err != nil {
			return lastword.Page{}, err
		}
		return readPage(a, query)
	})
}

func listQuery(m *wire.ListRequest) (q lastword.ListQuery, err error) {
	if err := checkKnown(m); err != nil {
		return q, err
	}
	if err := lastword.CheckPrefix(m.GetPrefix()); err != nil {
		return q, err
	}
	if m.GetAfter() != "" {
		if q.After, err = lastword.ParseResource(m.GetAfter()); err != nil {
			return q, err
		}
	}
	q.Prefix, q.Limit, q.All = m.GetPrefix(), int(min(m.GetLimit(), math.MaxInt32)), m.GetAll()
	return q, nil
}

// readPage reads a page and wants it to be one: in order, after the one before, and
// with a way on. A list that turns in circles would never end.
func readPage(m *wire.ListResponse, q lastword.ListQuery) (page lastword.Page, err error) {
	last := q.After
	for _, r := range m.GetResources() {
		st, err := readSight(r, q.Prefix)
		if err == nil && st.Resource <= last {
			err = invalid("%q stands behind %q", st.Resource, last)
		}
		if err != nil {
			return lastword.Page{}, &brokenAnswer{err}
		}
		last = st.Resource
		page.Resources = append(page.Resources, st)
	}
	if m.GetNext() == "" {
		return page, nil
	}
	if page.Next, err = lastword.ParseResource(m.GetNext()); err == nil && (page.Next < last || page.Next == q.After) {
		err = invalid("next %q: it goes back", page.Next)
	}
	if err != nil {
		return lastword.Page{}, &brokenAnswer{err}
	}
	return page, nil
}
