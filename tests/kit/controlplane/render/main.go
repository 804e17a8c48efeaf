// Command render prints what Helm makes of a chart, or kustomize of a kustomization: by their own code, as
// `helm template` and `kubectl kustomize` do.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const usage = "usage: render chart FOLDER NAMESPACE KUBERNETES-VERSION [VALUES-FILE] | render kustomization FOLDER"

func main() {
	text, err := rendered(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func rendered(args []string) (string, error) {
	switch {
	case len(args) == 2 && args[0] == "kustomization":
		return kustomization(args[1])
	case len(args) == 4 && args[0] == "chart":
		return chart(args[1], args[2], args[3], chartutil.Values{})
	case len(args) == 5 && args[0] == "chart":
		values, err := chartutil.ReadValuesFile(args[4])
		if err != nil {
			return "", err
		}
		return chart(args[1], args[2], args[3], values)
	}
	return "", fmt.Errorf("%s", usage)
}

func kustomization(folder string) (string, error) {
	options := krusty.MakeDefaultOptions()
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return "", err
	}
	text, err := resources.AsYaml()
	return string(text), err
}

func chart(folder, namespace, version string, values chartutil.Values) (string, error) {
	found, err := loader.LoadDir(folder)
	if err != nil {
		return "", err
	}
	capabilities := *chartutil.DefaultCapabilities
	kubernetes, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return "", err
	}
	capabilities.KubeVersion = *kubernetes
	if wanted := found.Metadata.KubeVersion; wanted != "" && !chartutil.IsCompatibleRange(wanted, version) {
		return "", fmt.Errorf("the chart is for Kubernetes %s, not %s", wanted, version)
	}
	release := chartutil.ReleaseOptions{Name: found.Metadata.Name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(found, values, release, &capabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Engine{Strict: true}.Render(found, all)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", name, files[name])
	}
	return text.String(), nil
}
