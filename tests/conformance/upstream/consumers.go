package main

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// consumerCase is a pod that uses a claim by its first entry, with its PodGroup, if that exists.
type consumerCase struct {
	Pod      corev1.Pod                `json:"pod"`
	PodGroup *schedulingapi.PodGroup   `json:"podGroup"`
	Claim    resourceapi.ResourceClaim `json:"claim"`
}

type consumerAnswer struct {
	Consumer   resourceapi.ResourceClaimConsumerReference `json:"consumer"`
	IsForPod   bool                                       `json:"isForPod"`
	IsReserved bool                                       `json:"isReserved"`
}

// consumers answers for whom a claim is reserved, whether it was made for the pod, and whether it is reserved for it.
func consumers(text json.RawMessage) (any, error) {
	var c consumerCase
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	consumer, err := resourceclaim.BindTo(&c.Pod, c.PodGroup, &c.Pod.Spec.ResourceClaims[0])
	if err != nil {
		return nil, err
	}
	return consumerAnswer{
		Consumer:   consumer,
		IsForPod:   resourceclaim.IsForPod(&c.Pod, &c.Claim, true) == nil,
		IsReserved: resourceclaim.IsReservedForPod(&c.Pod, &c.Claim, true),
	}, nil
}
