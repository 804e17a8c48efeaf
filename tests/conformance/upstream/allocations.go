package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// patience is for one node: its search has no limit of its own.
const patience = 2 * time.Second

// anyShareID stands for every share id, which are random.
const anyShareID types.UID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"

type device struct {
	Driver   string                                          `json:"driver"`
	Pool     string                                          `json:"pool"`
	Device   string                                          `json:"device"`
	ShareID  types.UID                                       `json:"shareID"`
	Capacity map[resourceapi.QualifiedName]resource.Quantity `json:"capacity"`
}

func (d device) id() structured.DeviceID { return structured.MakeDeviceID(d.Driver, d.Pool, d.Device) }

type testCase struct {
	Features   structured.Features          `json:"features"`
	Claims     []*resourceapi.ResourceClaim `json:"claims"`
	Classes    classes                      `json:"deviceClasses"`
	Slices     []*resourceapi.ResourceSlice `json:"resourceSlices"`
	Nodes      []*corev1.Node               `json:"nodes"`
	Allocated  []device                     `json:"allocatedDevices"`
	Shared     []device                     `json:"allocatedSharedDeviceIDs"`
	Aggregated []device                     `json:"aggregatedCapacity"`
}

type nodeRun struct {
	Node    string                         `json:"node"`
	Outcome string                         `json:"outcome"`
	Error   string                         `json:"error,omitempty"`
	Results []resourceapi.AllocationResult `json:"results,omitempty"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

// allocations answers an allocator case: a run for each node.
func allocations(text json.RawMessage) (any, error) {
	var c testCase
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	runs := make([]nodeRun, 0, len(c.Nodes))
	for _, node := range c.Nodes {
		runs = append(runs, decide(&c, node))
	}
	return runs, nil
}

func decide(c *testCase, node *corev1.Node) nodeRun {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	results, err := allocate(ctx, c, node)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nodeRun{Node: node.Name, Outcome: "timeout"}
	case err != nil:
		return nodeRun{Node: node.Name, Outcome: "error", Error: err.Error()}
	case results == nil:
		return nodeRun{Node: node.Name, Outcome: "nofit"}
	}
	for _, result := range results {
		for i := range result.Devices.Results {
			if result.Devices.Results[i].ShareID != nil {
				id := anyShareID
				result.Devices.Results[i].ShareID = &id
			}
		}
	}
	return nodeRun{Node: node.Name, Outcome: "allocated", Results: results}
}

func allocate(ctx context.Context, c *testCase, node *corev1.Node) ([]resourceapi.AllocationResult, error) {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, d := range c.Allocated {
		state.AllocatedDevices.Insert(d.id())
	}
	for _, d := range c.Shared {
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(d.id(), &d.ShareID))
	}
	for _, d := range c.Aggregated {
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(d.id(), d.Capacity))
	}
	cache := cel.NewCache(64, cel.Features{
		EnableConsumableCapacity: c.Features.ConsumableCapacity,
		EnableListTypeAttributes: c.Features.ListTypeAttributes,
	})
	allocator, err := structured.NewAllocator(ctx, c.Features, state, c.Classes, c.Slices, cache)
	if err != nil {
		return nil, err
	}
	return allocator.Allocate(ctx, node, c.Claims)
}
