// Judges a history of queues with porcupine: is there an order of all operations that one log per queue explains?
//
// It reads one JSON object from standard input, the operations of every queue and a time limit, and writes one to standard output.
// The model: a queue is a list. An append puts its value at the end; if its place was told, that is where it is. A read gives the
// values from a place on, none left out. An end says how long the list is. An append that nobody knows the end of may
// happen at any time after its begin; one that never happened is put behind everything else.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// An operation of a queue, as a client saw it. `End` is missing while nobody knows what became of it.
type operation struct {
	Kind   string    `json:"kind"` // append, read, end
	Begin  int64     `json:"begin"`
	End    *int64    `json:"end"`
	Place  *int      `json:"place"`  // Of an append: where it is. Of a read: its first one. Of an end: how many there are.
	Values []*string `json:"values"` // null: bytes that nobody can have sent.
}

type question struct {
	Seconds float64                `json:"seconds"`
	Queues  map[string][]operation `json:"queues"`
}

type answer struct {
	Result     string  `json:"result"` // Ok, Illegal, Unknown: the time was up.
	Operations int     `json:"operations"`
	Seconds    float64 `json:"seconds"`
	Wrong      []wrong `json:"wrong"`
}

// A queue that no order explains: how many of its operations the longest attempt has, and the first one that it has not.
type wrong struct {
	Queue      string `json:"queue"`
	Operations int    `json:"operations"`
	Explained  int    `json:"explained"`
	Stuck      string `json:"stuck"`
}

// Porcupine asks for the input and the output of an operation; here one value holds both, with what is known of its queue.
type step struct {
	operation
	queue string
	known *known
}

// What the operations of a queue say together, and what spares a search: in any order that is right a place has one value, and the
// list has the length that an end tells before it is any longer.
type known struct {
	named map[int]string // By place.
	ends  bool
	end   int
}

// A list, as a path back to the empty one. Equal lists are one object: a node keeps who follows it.
type list struct {
	before *list
	value  string
	length int
	after  map[string]*list
}

func (l *list) with(value string) *list {
	found, ok := l.after[value]
	if !ok {
		found = &list{before: l, value: value, length: l.length + 1}
		if l.after == nil {
			l.after = map[string]*list{}
		}
		l.after[value] = found
	}
	return found
}

func (l *list) holds(place int, values []*string) bool {
	if place < 0 || place+len(values) > l.length {
		return false
	}
	for l.length > place+len(values) {
		l = l.before
	}
	for at := len(values) - 1; at >= 0; at-- {
		if values[at] == nil || *values[at] != l.value {
			return false
		}
		l = l.before
	}
	return true
}

type queue struct {
	*list
	ended bool
}

func take(state, input, _ interface{}) (bool, interface{}) {
	now, do := state.(queue), input.(step)
	switch do.Kind {
	case "append":
		value := *do.Values[0]
		if do.Place != nil && *do.Place != now.length {
			return false, nil
		}
		if name, ok := do.known.named[now.length]; ok && name != value {
			return false, nil
		}
		if do.known.ends && !now.ended && now.length >= do.known.end {
			return false, nil
		}
		return true, queue{now.with(value), now.ended}
	case "read":
		return now.holds(*do.Place, do.Values), now
	default:
		return now.length == *do.Place, queue{now.list, true}
	}
}

func describe(input, _ interface{}) string {
	do, place := input.(step), "nowhere known"
	if do.Place != nil {
		place = fmt.Sprint(*do.Place)
	}
	if do.Kind == "end" {
		return "the end at " + place
	}
	values := []string{}
	for _, value := range do.Values {
		if value == nil {
			values = append(values, "rubbish")
		} else {
			values = append(values, *value)
		}
	}
	if len(values) > 4 {
		values = append(values[:4], "...")
	}
	return fmt.Sprintf("%s of %v at %s", do.Kind, values, place)
}

func byQueue(all []porcupine.Operation) [][]porcupine.Operation {
	at, parts := map[string]int{}, [][]porcupine.Operation{}
	for _, each := range all {
		queue := each.Input.(step).queue
		if _, ok := at[queue]; !ok {
			at[queue], parts = len(parts), append(parts, nil)
		}
		parts[at[queue]] = append(parts[at[queue]], each)
	}
	return parts
}

var model = porcupine.Model{
	Partition:         byQueue,
	Init:              func() interface{} { return queue{list: &list{}} },
	Step:              take,
	Hash:              func(state interface{}) uint64 { return uint64(state.(queue).length) },
	DescribeOperation: describe,
}

// By whoever told it first. A place with two values, or a second end, makes no order right, whichever is noted.
func told(operations []operation) *known {
	found := &known{named: map[int]string{}}
	for _, each := range operations {
		if each.Kind == "end" {
			found.ends, found.end = true, *each.Place
		}
		for at, value := range each.Values {
			if each.Place == nil || value == nil {
				continue
			}
			if _, ok := found.named[*each.Place+at]; !ok {
				found.named[*each.Place+at] = *value
			}
		}
	}
	return found
}

func history(queues map[string][]operation) []porcupine.Operation {
	all := []porcupine.Operation{}
	for queue, operations := range queues {
		known := told(operations)
		for _, each := range operations {
			end := int64(math.MaxInt64)
			if each.End != nil {
				end = *each.End
			}
			all = append(all, porcupine.Operation{
				Input: step{each, queue, known}, Call: each.Begin, Return: end, Metadata: len(all),
			})
		}
	}
	return all
}

// How far the longest attempt got, and the first operation to end that is not in it.
func stuck(part []porcupine.Operation, attempts [][]porcupine.Operation) (int, string) {
	longest := []porcupine.Operation{}
	for _, each := range attempts {
		if len(each) > len(longest) {
			longest = each
		}
	}
	has := map[interface{}]bool{}
	for _, each := range longest {
		has[each.Metadata] = true
	}
	var first *porcupine.Operation
	for at, each := range part {
		if !has[each.Metadata] && (first == nil || each.Return < first.Return) {
			first = &part[at]
		}
	}
	if first == nil {
		return len(longest), ""
	}
	return len(longest), describe(first.Input, nil)
}

func main() {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fmt.Fprintln(os.Stderr, "no history:", err)
		os.Exit(2)
	}
	all, began := history(asked.Queues), time.Now()
	limit := time.Duration(asked.Seconds * float64(time.Second))
	result, info := porcupine.CheckOperationsVerbose(model, all, limit)
	answer := answer{Result: string(result), Operations: len(all), Seconds: time.Since(began).Seconds(), Wrong: []wrong{}}
	attempts := info.PartialLinearizationsOperations()
	for at, part := range byQueue(all) {
		if explained, what := stuck(part, attempts[at]); explained < len(part) {
			answer.Wrong = append(answer.Wrong, wrong{part[0].Input.(step).queue, len(part), explained, what})
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		os.Exit(2)
	}
}
