// Command driver is a DRA driver for devices that do not exist.
//
// It publishes the devices of a file as the pool of its node. A device that is prepared becomes a CDI device that sets
// one variable: DEVICE_<NAME>=<driver>/<pool>/<device>. So a container shows which devices it has been given.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	flag "github.com/spf13/pflag"
	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

const cdiVersion = "0.6.0"

// driver prepares claims: each one has a CDI file of its own, which is gone when the claim is unprepared.
type driver struct {
	name   string
	folder string
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the file of the API server's address and a token")
	name := flag.String("name", "", "the driver's name, such as gpu.example.com")
	node := flag.String("node", "", "the node's name, which is the pool's name, too")
	devices := flag.String("devices", "", "a file with the pool's devices: a JSON array, as in a ResourceSlice")
	kubelet := flag.String("kubelet", "", "the kubelet's root directory")
	folder := flag.String("cdi", "", "the directory for CDI files")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, driver{*name, *folder}, *kubeconfig, *node, *devices, *kubelet); err != nil {
		klog.Fatal(err)
	}
}

// serve registers the driver with the kubelet, publishes the devices, and works until the context ends.
func serve(ctx context.Context, d driver, kubeconfig, node, devices, kubelet string) error {
	pool, err := readPool(devices)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data, registry := filepath.Join(kubelet, "plugins", d.name), filepath.Join(kubelet, "plugins_registry")
	for _, folder := range []string{d.folder, data, registry} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(d.name), kubeletplugin.NodeName(node), kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(registry))
	if err != nil {
		return err
	}
	defer helper.Stop()
	pools := map[string]resourceslice.Pool{node: pool}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// readPool reads a file of devices: all of them are in one slice.
func readPool(path string) (resourceslice.Pool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return resourceslice.Pool{}, err
	}
	var devices []resource.Device
	if err := json.Unmarshal(text, &devices); err != nil {
		return resourceslice.Pool{}, fmt.Errorf("%s: %w", path, err)
	}
	return resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}, nil
}

// PrepareResourceClaims writes a CDI file for each claim.
func (d driver) PrepareResourceClaims(_ context.Context, claims []*resource.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
		klog.InfoS("Prepared", "claim", klog.KObj(claim), "devices", len(devices), "err", err)
	}
	return results, nil
}

func (d driver) prepare(claim *resource.ResourceClaim) ([]kubeletplugin.Device, error) {
	spec := cdi.Spec{Version: cdiVersion, Kind: d.name + "/claim"}
	var prepared []kubeletplugin.Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.name {
			continue
		}
		name := fmt.Sprintf("%s-%s", claim.UID, result.Device)
		variable := "DEVICE_" + strings.ToUpper(strings.ReplaceAll(result.Device, "-", "_"))
		value := strings.Join([]string{result.Driver, result.Pool, result.Device}, "/")
		spec.Devices = append(spec.Devices, cdi.Device{Name: name, ContainerEdits: cdi.ContainerEdits{Env: []string{variable + "=" + value}}})
		prepared = append(prepared, kubeletplugin.Device{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
			CDIDeviceIDs: []string{spec.Kind + "=" + name},
		})
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	// The runtime reads whole files only: a file of the name that it looks for appears at once.
	path := d.file(claim.UID)
	if err := os.WriteFile(path+".unfinished", text, 0o644); err != nil {
		return nil, err
	}
	return prepared, os.Rename(path+".unfinished", path)
}

// UnprepareResourceClaims removes the files of claims; without a file, there is nothing to do.
func (d driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(d.file(claim.UID))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		results[claim.UID] = err
		klog.InfoS("Unprepared", "claim", claim.String(), "err", err)
	}
	return results, nil
}

// HandleError is told what goes wrong in the background, where it is tried again.
func (d driver) HandleError(_ context.Context, err error, message string) { klog.ErrorS(err, message) }

func (d driver) file(claim types.UID) string {
	return filepath.Join(d.folder, fmt.Sprintf("%s-%s.json", d.name, claim))
}
