// Command probe is what the containers of the node tests run.
//
//	probe pause         waits for a signal
//	probe show          prints its environment as a JSON object, then waits for a signal
//	probe show stay     prints its environment, then waits for SIGKILL: a container that needs its whole grace period
//
// It needs no file but itself.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if slices.Contains(os.Args[1:], "show") {
		show()
	}
	for {
		<-stop
		if !slices.Contains(os.Args[1:], "stay") {
			return
		}
	}
}

func show() {
	environment := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		environment[name] = value
	}
	text, err := json.Marshal(environment)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
