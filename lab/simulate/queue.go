package simulate

// task is what happens at a moment.
type task struct {
	at   int64
	no   uint32 // of two at one moment, the earlier one was asked for first
	kind taskKind
	who  int16
	arg  uint32
}

type taskKind uint8

const (
	doNothing     taskKind = iota
	doDeliver              // message arg arrives
	doOwner                // owner who looks at its clock; arg is which of its wake-ups
	doLook                 // authority process who looks; arg is which of its lives
	doCommit               // authority process who commits what it has decided
	doStart                // authority process who takes the next step of a start
	doTransact             // message arg goes into the resource's transaction
	doSecond               // message arg, second half of a torn transaction
	doAskedEnough          // the question for message arg has had no answer
	doBegin                // round who begins
	doWake                 // owner who goes on after a pause
	doThink                // owner who goes on with its work
	doOperator             // the operator does arg
)

// queue is a heap of tasks, ordered by time and then by who was asked for first.
type queue struct {
	tasks []task
	no    uint32
}

func (q *queue) reset() { q.tasks, q.no = q.tasks[:0], 0 }

func earlier(a, b *task) bool { return a.at < b.at || a.at == b.at && a.no < b.no }

func (q *queue) push(t task) {
	q.no++
	t.no = q.no
	q.tasks = append(q.tasks, t)
	i := len(q.tasks) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !earlier(&t, &q.tasks[up]) {
			break
		}
		q.tasks[i] = q.tasks[up]
		i = up
	}
	q.tasks[i] = t
}

func (q *queue) pop() (task, bool) {
	n := len(q.tasks)
	if n == 0 {
		return task{}, false
	}
	top, last := q.tasks[0], q.tasks[n-1]
	q.tasks = q.tasks[:n-1]
	if n--; n == 0 {
		return top, true
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, n); c++ {
			if earlier(&q.tasks[c], &q.tasks[least]) {
				least = c
			}
		}
		if !earlier(&q.tasks[least], &last) {
			break
		}
		q.tasks[i] = q.tasks[least]
		i = least
	}
	q.tasks[i] = last
	return top, true
}
