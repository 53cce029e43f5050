// RocketMQ's Go client behind JSON lines: producers and push consumers that a test names, starts, uses and stops.
//
// It speaks as the Java driver does: {"do": name, ...} in, {"ok": true, ...} out, what the client saw.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type command map[string]any
type answer map[string]any

var commands = map[string]func(command) (answer, error){
	"producer":      startProducer,
	"stop-producer": stopProducer,
	"send":          send,
	"send-batch":    sendBatch,
	"transaction":   transaction,
	"checks":        checkCounts,
	"consumer":      startConsumer,
	"stop-consumer": stopConsumer,
	"received":      received,
}

func main() {
	// Whatever the library prints goes to standard error: standard output holds answers only.
	out := bufio.NewWriter(os.Stdout)
	os.Stdout = os.Stderr
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	for lines.Scan() {
		var given command
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		text, err := json.Marshal(run(given))
		if err != nil {
			panic(err)
		}
		out.Write(append(text, '\n'))
		out.Flush()
	}
}

func run(given command) (result answer) {
	defer func() {
		if problem := recover(); problem != nil {
			result = answer{"ok": false, "error": fmt.Sprint(problem)}
		}
	}()
	do, known := commands[given.text("do", "")]
	if !known {
		return answer{"ok": false, "error": "no such command: " + given.text("do", "")}
	}
	result, err := do(given)
	if err != nil {
		return answer{"ok": false, "error": err.Error()}
	}
	if result == nil {
		result = answer{}
	}
	result["ok"] = true
	return result
}

func (c command) text(name, otherwise string) string {
	if value, ok := c[name].(string); ok {
		return value
	}
	return otherwise
}

func (c command) number(name string, otherwise int) int {
	if value, ok := c[name].(float64); ok {
		return int(value)
	}
	return otherwise
}

func (c command) flag(name string) bool {
	value, _ := c[name].(bool)
	return value
}

func (c command) list(name string) []command {
	var found []command
	items, _ := c[name].([]any)
	for _, item := range items {
		found = append(found, command(item.(map[string]any)))
	}
	return found
}
