// Command controlplane is etcd, kube-apiserver, kube-controller-manager or kube-scheduler, by its first argument.
//
// One binary for all four costs one link and shares what they have in common. The cluster tests run it beside the
// extender; it is not for production.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics of API clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric of the version
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usage = "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler [flags]"

func main() {
	if len(os.Args) < 2 {
		refuse("no component named")
	}
	component := os.Args[1]
	// Each component reads the rest as if it had been called by its own name.
	os.Args = os.Args[1:]
	switch component {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	default:
		refuse(fmt.Sprintf("no component %q", component))
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func refuse(problem string) {
	fmt.Fprintf(os.Stderr, "controlplane: %s\n%s\n", problem, usage)
	os.Exit(2)
}
