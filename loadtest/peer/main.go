// Command peer times upstream's structured allocator on a world file, as kube-scheduler's plugin would call it.
//
// For each pod: copy what is allocated, make an allocator, ask it for every node, on as many goroutines as the scheduler
// uses. In between, the devices found on one of the nodes become allocated, so that no pod sees what another has seen.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// parallelism is kube-scheduler's default.
const parallelism = 16

// features are those that are on in a default cluster of this version.
var features = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

// world is what tests/kit/objects/worlds.py writes: API objects, and the claims of a pod of which many are to be decided.
type world struct {
	Nodes     []*corev1.Node               `json:"nodes"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   classes                      `json:"classes"`
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Pending   []*resourceapi.ResourceClaim `json:"pending"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, errors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

// report is printed as JSON.
type report struct {
	// Asked is the number of nodes that each pod was decided on.
	Asked int `json:"asked"`
	// Fit is on how many of them the first pod fits.
	Fit int `json:"fit"`
	// Seconds are how long each pod took, the first one first.
	Seconds []float64 `json:"seconds"`
	// CPU is what each took of all cores together.
	CPU []float64 `json:"cpu"`
}

func main() {
	pods := flag.Int("pods", 5, "how many pods to decide")
	limit := flag.Int("nodes", 0, "how many of the nodes to ask for; 0: all")
	flag.Parse()
	found, err := run(flag.Arg(0), *pods, *limit)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(path string, pods, limit int) (*report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var w world
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if limit > 0 && limit < len(w.Nodes) {
		w.Nodes = w.Nodes[:limit]
	}
	held := sets.New[structured.DeviceID]()
	for _, claim := range w.Allocated {
		take(held, *claim.Status.Allocation)
	}
	cache := cel.NewCache(len(w.Classes)+16, cel.Features{EnableConsumableCapacity: true})
	if _, err := decide(&w, held, cache, w.Nodes[:1]); err != nil { // compiles the selectors
		return nil, err
	}
	result := &report{Asked: len(w.Nodes)}
	for pod := range pods {
		start, before := time.Now(), cpu()
		found, err := decide(&w, held, cache, w.Nodes)
		result.Seconds = append(result.Seconds, time.Since(start).Seconds())
		result.CPU = append(result.CPU, cpu()-before)
		if err != nil {
			return nil, err
		}
		fitting := slices.DeleteFunc(found, func(a []resourceapi.AllocationResult) bool { return a == nil })
		if pod == 0 {
			result.Fit = len(fitting)
		}
		if len(fitting) > 0 {
			for _, allocation := range fitting[pod*len(fitting)/pods] {
				take(held, allocation)
			}
		}
	}
	return result, nil
}

// decide returns the allocations on each node, nil where there is none.
func decide(
	w *world, held sets.Set[structured.DeviceID], cache *cel.Cache, nodes []*corev1.Node,
) ([][]resourceapi.AllocationResult, error) {
	ctx := context.Background()
	state := structured.AllocatedState{
		AllocatedDevices:         held.Clone(),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	allocator, err := structured.NewAllocator(ctx, features, state, w.Classes, w.Slices, cache)
	if err != nil {
		return nil, err
	}
	found := make([][]resourceapi.AllocationResult, len(nodes))
	failures := make([]error, parallelism)
	var next atomic.Int64
	var workers sync.WaitGroup
	for worker := range parallelism {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(nodes); i = int(next.Add(1)) - 1 {
				var err error
				if found[i], err = allocator.Allocate(ctx, nodes[i], w.Pending); err != nil {
					failures[worker] = fmt.Errorf("node %s: %w", nodes[i].Name, err)
					return
				}
			}
		})
	}
	workers.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// cpu returns the seconds that the process has spent computing.
func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // no other cause than a wrong argument
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func take(held sets.Set[structured.DeviceID], allocation resourceapi.AllocationResult) {
	for _, device := range allocation.Devices.Results {
		held.Insert(structured.MakeDeviceID(device.Driver, device.Pool, device.Device))
	}
}
