// Package suites names the packages of Kubernetes whose tests are built, so that go.mod and go.sum have all that they need.
package suites

import (
	_ "k8s.io/kubernetes/test/integration/dra"
	_ "k8s.io/kubernetes/test/integration/scheduler_perf"
)
