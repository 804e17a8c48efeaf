// Kubernetes' own tests with an extender in place of the plugin DynamicResources. When the tests are built, this file
// joins the package k8s.io/kubernetes/test/integration/util, and the function there that starts a scheduler calls
// withDRAExtender first. It serves 1.36 and 1.37.

package util

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/featuregate"
	draconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// draSubject is the environment variable with the file that says who allocates devices. Without it, the plugin does.
const (
	draSubject    = "DRA_SUITE_SUBJECT"
	draPlugin     = "DynamicResources"
	draStarts     = 120 * time.Second
	draStops      = 20 * time.Second
	draPart       = "part"
	draScheduler  = "scheduler"
	draExtenderIs = "dra-extender"
)

// draSubjectFile is what tests.kit.suites.subject writes.
type draSubjectFile struct {
	// Command starts the extender in Folder. Its port, kubeconfig, gates and binding timeout are added.
	Command []string
	Folder  string
	// Logs is a folder for one log of each extender, and one file with its process id.
	Logs string
	// Extender is the first entry of extenders in the scheduler's configuration that we ship.
	Extender json.RawMessage
	// PercentageOfNodesToScore is that of the same configuration.
	PercentageOfNodesToScore int32
	// Gates are the feature gates that the extender knows.
	Gates []string
	// Words are put in place of the extender's own in its answers, the first that fit. Without them, the scheduler calls the extender
	// itself.
	Words []draWord
}

type draWord struct {
	Ours, Upstream string
}

// draTest is what is needed of ktesting.TContext, which is in another package in 1.36.
type draTest interface {
	context.Context
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	RESTConfig() *rest.Config
}

var draStarted atomic.Int32

// withDRAExtender returns the configuration with an extender in place of the plugin, and what has to be called when the
// scheduler has been started. Until then, goroutines get a label for CPU profiles, which all that they start inherit.
func withDRAExtender(test draTest, cfg *draconfig.KubeSchedulerConfiguration) (*draconfig.KubeSchedulerConfiguration, func()) {
	label := func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(draPart, draScheduler)))
	}
	unlabel := func() { pprof.SetGoroutineLabels(context.Background()) }
	file := os.Getenv(draSubject)
	if file == "" || !draEnabled(cfg) {
		label()
		return cfg, unlabel
	}
	var subject draSubjectFile
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &subject)
	}
	if err != nil {
		test.Fatalf("%s: %v", draSubject, err)
	}
	address, err := startDRAExtender(test, subject, draTimeout(cfg))
	if err != nil {
		test.Fatalf("%s: %v", draExtenderIs, err)
	}
	changed, err := draConfigured(cfg, subject, address)
	if err != nil {
		test.Fatalf("%s: %v", draExtenderIs, err)
	}
	label()
	return changed, unlabel
}

func draEnabled(cfg *draconfig.KubeSchedulerConfiguration) bool {
	for _, profile := range cfg.Profiles {
		for _, plugin := range profile.Plugins.MultiPoint.Enabled {
			if plugin.Name == draPlugin {
				return true
			}
		}
	}
	return false
}

func draTimeout(cfg *draconfig.KubeSchedulerConfiguration) time.Duration {
	for _, profile := range cfg.Profiles {
		for _, plugin := range profile.PluginConfig {
			if args, ok := plugin.Args.(*draconfig.DynamicResourcesArgs); ok && args.BindingTimeout != nil {
				return args.BindingTimeout.Duration
			}
		}
	}
	return 0
}

func draConfigured(cfg *draconfig.KubeSchedulerConfiguration, subject draSubjectFile, address string) (*draconfig.KubeSchedulerConfiguration, error) {
	changed := cfg.DeepCopy()
	for i := range changed.Profiles {
		plugins := changed.Profiles[i].Plugins
		var kept []draconfig.Plugin
		for _, plugin := range plugins.MultiPoint.Enabled {
			if plugin.Name != draPlugin {
				kept = append(kept, plugin)
			}
		}
		plugins.MultiPoint.Enabled = kept
		plugins.PreEnqueue.Enabled = append(plugins.PreEnqueue.Enabled, draconfig.Plugin{Name: draPlugin})
		if subject.PercentageOfNodesToScore > 0 {
			changed.Profiles[i].PercentageOfNodesToScore = &subject.PercentageOfNodesToScore
		}
	}
	var extender draconfig.Extender
	if err := json.Unmarshal(subject.Extender, &extender); err != nil {
		return nil, fmt.Errorf("reading the extender's entry: %w", err)
	}
	extender.URLPrefix = "http://" + address
	changed.Extenders = append(changed.Extenders, extender)
	return changed, nil
}

// startDRAExtender starts a process that ends with the test, and returns where the scheduler has to call.
func startDRAExtender(test draTest, subject draSubjectFile, timeout time.Duration) (string, error) {
	number := draStarted.Add(1)
	name := filepath.Join(subject.Logs, fmt.Sprintf("%d-%d", os.Getpid(), number))
	kubeconfig := name + ".kubeconfig"
	if err := writeDRAKubeconfig(test.RESTConfig(), kubeconfig); err != nil {
		return "", err
	}
	port, err := freeDRAPort()
	if err != nil {
		return "", err
	}
	log, err := os.Create(name + ".log")
	if err != nil {
		return "", err
	}
	defer log.Close()
	command := exec.Command(subject.Command[0], subject.Command[1:]...)
	command.Dir = subject.Folder
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(),
		"DRA_EXTENDER__SERVER__PORT="+strconv.Itoa(port),
		"DRA_EXTENDER__FEATURE_GATES="+draGates(subject.Gates),
		"KUBECONFIG="+kubeconfig,
	)
	if timeout > 0 {
		seconds := strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64)
		command.Env = append(command.Env, "DRA_EXTENDER__SCHEDULING__BINDING_TIMEOUT_SECONDS="+seconds)
	}
	if err := command.Start(); err != nil {
		return "", err
	}
	if err := os.WriteFile(name+".pid", []byte(strconv.Itoa(command.Process.Pid)), 0o600); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	go func() {
		select {
		case <-ended:
			return
		case <-test.Done():
		}
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(draStops):
			_ = command.Process.Kill()
		}
	}()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := waitForDRAExtender(test, address, ended); err != nil {
		return "", fmt.Errorf("%w; its log is %s.log", err, name)
	}
	test.Logf("%s %d listens on %s", draExtenderIs, number, address)
	if len(subject.Words) == 0 {
		return address, nil
	}
	return draTranslator(test, address, subject.Words)
}

func writeDRAKubeconfig(from *rest.Config, path string) error {
	cluster := &clientcmdapi.Cluster{
		Server:                   from.Host,
		CertificateAuthority:     from.CAFile,
		CertificateAuthorityData: from.CAData,
		TLSServerName:            from.ServerName,
		InsecureSkipTLSVerify:    from.Insecure,
	}
	user := &clientcmdapi.AuthInfo{
		Token:                 from.BearerToken,
		ClientCertificate:     from.CertFile,
		ClientCertificateData: from.CertData,
		ClientKey:             from.KeyFile,
		ClientKeyData:         from.KeyData,
	}
	if !strings.Contains(cluster.Server, "://") {
		cluster.Server = "https://" + cluster.Server
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"test": user},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, path)
}

func freeDRAPort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func draGates(names []string) string {
	known := map[string]bool{}
	for gate := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		known[string(gate)] = true
	}
	var gates []string
	for _, name := range names {
		on := known[name] && utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
		gates = append(gates, fmt.Sprintf("%s=%t", name, on))
	}
	return strings.Join(gates, ",")
}

func waitForDRAExtender(test draTest, address string, ended <-chan struct{}) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.After(draStarts)
	for {
		response, err := client.Get("http://" + address + "/readyz")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/readyz answers %s", response.Status)
		}
		select {
		case <-ended:
			return fmt.Errorf("it has ended")
		case <-test.Done():
			return test.Err()
		case <-deadline:
			return fmt.Errorf("not ready after %s: %w", draStarts, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// draTranslator listens between scheduler and extender, and puts upstream's words into the answers.
func draTranslator(test draTest, address string, words []draWord) (string, error) {
	var table []draRule
	for _, word := range words {
		ours, err := regexp.Compile(word.Ours)
		if err != nil {
			return "", fmt.Errorf("word %q: %w", word.Ours, err)
		}
		table = append(table, draRule{ours, word.Upstream})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 10}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.Transport = transport
	proxy.ModifyResponse = func(response *http.Response) error { return draTranslated(response, table) }
	server := &http.Server{Handler: proxy}
	go func() { _ = server.Serve(listener) }()
	go func() {
		<-test.Done()
		_ = server.Close()
		transport.CloseIdleConnections()
	}()
	return listener.Addr().String(), nil
}

type draRule struct {
	ours     *regexp.Regexp
	upstream string
}

func draTranslated(response *http.Response, table []draRule) error {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	var answer map[string]any
	if response.StatusCode == http.StatusOK && json.Unmarshal(body, &answer) == nil {
		for key, value := range answer {
			switch value := value.(type) {
			case string:
				answer[key] = draWords(value, table)
			case map[string]any:
				for node, reason := range value {
					if text, ok := reason.(string); ok {
						value[node] = draWords(text, table)
					}
				}
			}
		}
		if body, err = json.Marshal(answer); err != nil {
			return err
		}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

func draWords(text string, table []draRule) string {
	for _, rule := range table {
		if rule.ours.MatchString(text) {
			return rule.ours.ReplaceAllString(text, rule.upstream)
		}
	}
	return text
}
