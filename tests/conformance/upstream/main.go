// Command upstream answers cases as upstream does: with its structured allocator, with its CEL environment for
// devices, or with its rules for the consumers of claims. Cases come on standard input, answers go to standard output, both as JSON arrays.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/dynamic-resource-allocation/structured"
)

var answers = map[string]func(json.RawMessage) (any, error){
	"allocations":  allocations,
	"consumers":    consumers,
	"declarations": declarations,
	"selectors":    selectors,
}

func main() {
	structured.EnableAllocators("experimental")
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

func run(kind string) error {
	answer, known := answers[kind]
	if !known {
		return fmt.Errorf("no cases are called %q", kind)
	}
	var cases []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		return err
	}
	found := make([]any, 0, len(cases))
	for _, text := range cases {
		one, err := answerOrPanic(answer, text)
		if err != nil {
			return err
		}
		found = append(found, one)
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// answerOrPanic answers a case, or says why upstream cannot: some expressions end its checker.
func answerOrPanic(answer func(json.RawMessage) (any, error), text json.RawMessage) (one any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			one, err = map[string]string{"panic": fmt.Sprint(reason)}, nil
		}
	}()
	return answer(text)
}
