package deploy

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// scheme knows the types of the Kubernetes API and of the Prometheus operator that the example uses.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	err := errors.Join(appsv1.AddToScheme(s), corev1.AddToScheme(s), policyv1.AddToScheme(s), monitoringv1.AddToScheme(s))
	if err != nil {
		panic(err)
	}
	return s
}()

// manifests are the objects of deploy/kubernetes.
type manifests struct {
	deployment *appsv1.Deployment
	services   []*corev1.Service
	config     *corev1.ConfigMap
	budget     *policyv1.PodDisruptionBudget
	monitor    *monitoringv1.ServiceMonitor
}

// decode reads YAML documents as strictly as kubectl apply does: no member is unknown, misspelt or there twice.
func decode(text string) (m manifests, faults []string) {
	for document := range strings.SplitSeq(text, "\n---\n") {
		data, err := yaml.YAMLToJSONStrict([]byte(document))
		var kind metav1.TypeMeta
		if err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(data, &kind)
		}
		var object runtime.Object
		if err == nil {
			object, err = scheme.New(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
		}
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		strict, err := kjson.UnmarshalStrict(data, object)
		for _, err := range append(strict, err) {
			if err != nil {
				faults = append(faults, kind.Kind+": "+err.Error())
			}
		}
		switch o := object.(type) {
		case *appsv1.Deployment:
			m.deployment = o
		case *corev1.Service:
			m.services = append(m.services, o)
		case *corev1.ConfigMap:
			m.config = o
		case *policyv1.PodDisruptionBudget:
			m.budget = o
		case *monitoringv1.ServiceMonitor:
			m.monitor = o
		default:
			faults = append(faults, kind.Kind+" is not known here")
		}
	}
	if m.deployment == nil || m.config == nil || m.budget == nil || m.monitor == nil || len(m.deployment.Spec.Template.Spec.Containers) != 1 {
		faults = append(faults, "want a Deployment with one container, a ConfigMap, a PodDisruptionBudget and a ServiceMonitor")
	}
	return m, faults
}

// kubernetesFaults is what does not fit together in the manifests.
func kubernetesFaults(text string) []string {
	m, faults := decode(text)
	if len(faults) > 0 {
		return faults
	}
	cfg, err := settingsOf(m.config.Data["config.yaml"])
	if err != nil {
		return []string{"ConfigMap: " + err.Error()}
	}
	return slices.Concat(m.selectorFaults(), m.portFaults(cfg), m.configFaults(), m.secretFaults(text), m.limitFaults(cfg))
}

func (m manifests) container() corev1.Container { return m.deployment.Spec.Template.Spec.Containers[0] }

// selectorFaults: selectors select what they should.
func (m manifests) selectorFaults() (faults []string) {
	pods := labels.Set(m.deployment.Spec.Template.Labels)
	selectors := map[string]*metav1.LabelSelector{"Deployment": m.deployment.Spec.Selector, "PodDisruptionBudget": m.budget.Spec.Selector}
	for _, c := range m.deployment.Spec.Template.Spec.TopologySpreadConstraints {
		selectors["topologySpreadConstraints"] = c.LabelSelector
	}
	for _, s := range m.services {
		selectors["Service "+s.Name] = &metav1.LabelSelector{MatchLabels: s.Spec.Selector}
	}
	for what, s := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(pods) {
			faults = append(faults, fmt.Sprintf("%s: its selector does not select the pods (%v)", what, err))
		}
	}
	if !slices.ContainsFunc(m.services, m.monitored) {
		faults = append(faults, "ServiceMonitor: its selector selects no Service")
	}
	return faults
}

func (m manifests) monitored(s *corev1.Service) bool {
	selector, err := metav1.LabelSelectorAsSelector(&m.monitor.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(s.Labels))
}

// portFaults: ports that are referred to exist, and the gateway listens on them.
func (m manifests) portFaults(cfg settings) (faults []string) {
	named := map[string]string{}
	for _, p := range m.container().Ports {
		named[p.Name] = fmt.Sprint(p.ContainerPort)
	}
	if want := map[string]string{"http": port(cfg.Server.Listen), "admin": port(cfg.Admin.Listen)}; !maps.Equal(named, want) {
		faults = append(faults, fmt.Sprintf("the container has ports %v, the gateway listens on %v", named, want))
	}
	for what, p := range m.probes() {
		if named[p.HTTPGet.Port.String()] == "" {
			faults = append(faults, fmt.Sprintf("%s: the container has no port %s", what, p.HTTPGet.Port.String()))
		}
	}
	for _, s := range m.services {
		has := map[string]bool{}
		for _, p := range s.Spec.Ports {
			has[p.Name] = true
			if named[p.TargetPort.String()] == "" {
				faults = append(faults, fmt.Sprintf("Service %s: the container has no port %s", s.Name, p.TargetPort.String()))
			}
		}
		for _, e := range m.monitor.Spec.Endpoints {
			if m.monitored(s) && !has[e.Port] {
				faults = append(faults, fmt.Sprintf("ServiceMonitor: the Service %s has no port %s", s.Name, e.Port))
			}
		}
	}
	return faults
}

// probes are those of the container, by name.
func (m manifests) probes() map[string]*corev1.Probe {
	c := m.container()
	return map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe}
}

// configFaults: the file that the gateway reads is a key of the ConfigMap, mounted as a folder.
func (m manifests) configFaults() (faults []string) {
	c := m.container()
	i := slices.Index(c.Args, "--config")
	if i < 0 || i+1 >= len(c.Args) {
		return []string{"the container's args have no --config"}
	}
	file := c.Args[i+1]
	if _, ok := m.config.Data[path.Base(file)]; !ok {
		faults = append(faults, "the ConfigMap has no "+path.Base(file))
	}
	volume := ""
	for _, v := range m.deployment.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name == m.config.Name {
			volume = v.Name
		}
	}
	mounted := func(v corev1.VolumeMount) bool {
		return v.Name == volume && v.MountPath == path.Dir(file) && v.SubPath == ""
	}
	if volume == "" || !slices.ContainsFunc(c.VolumeMounts, mounted) {
		faults = append(faults, fmt.Sprintf("the ConfigMap %s is not mounted on %s", m.config.Name, path.Dir(file)))
	}
	return faults
}

// secretFaults: what the config takes from the environment is what the pod gets from the Secret, and what the comment makes.
func (m manifests) secretFaults(text string) (faults []string) {
	made := regexp.MustCompile(`create secret generic (\S+) (.*)`).FindStringSubmatch(text)
	if made == nil {
		return []string{"no comment says how to make the Secret"}
	}
	var given, literals []string
	for _, e := range m.container().Env {
		if e.ValueFrom == nil {
			continue
		}
		given = append(given, e.Name)
		if s := e.ValueFrom.SecretKeyRef; s == nil || s.Key != e.Name || s.Name != made[1] {
			faults = append(faults, fmt.Sprintf("env %s: not that of the Secret %s", e.Name, made[1]))
		}
	}
	for _, l := range regexp.MustCompile(`--from-literal=(\w+)=`).FindAllStringSubmatch(made[2], -1) {
		literals = append(literals, l[1])
	}
	slices.Sort(given)
	slices.Sort(literals)
	if want := referenced(m.config.Data["config.yaml"]); !slices.Equal(given, want) || !slices.Equal(literals, want) {
		faults = append(faults, fmt.Sprintf("the config needs %v of the environment, the pod gives %v, the comment makes %v", want, given, literals))
	}
	return faults
}

// limitFaults: a pod has the time to drain, and collects garbage before it is killed for its memory. One pod may go.
func (m manifests) limitFaults(cfg settings) (faults []string) {
	pod, c := m.deployment.Spec.Template.Spec, m.container()
	needed := cfg.grace()
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
		needed += time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	if s := pod.TerminationGracePeriodSeconds; s == nil || time.Duration(*s)*time.Second <= needed {
		faults = append(faults, fmt.Sprintf("terminationGracePeriodSeconds is not above preStop and shutdown_grace, %s", needed))
	}
	for _, e := range c.Env {
		if e.Name != "GOMEMLIMIT" {
			continue
		}
		soft, err := resource.ParseQuantity(strings.TrimSuffix(e.Value, "B"))
		if err != nil || soft.Cmp(*c.Resources.Limits.Memory()) >= 0 {
			faults = append(faults, fmt.Sprintf("GOMEMLIMIT %s is not below the memory limit (%v)", e.Value, err))
		}
	}
	if r := m.deployment.Spec.Replicas; r == nil || int(*r) <= m.budget.Spec.MaxUnavailable.IntValue() {
		faults = append(faults, "PodDisruptionBudget: it lets all pods go")
	}
	return faults
}

// kubernetes is the text of all manifests.
func kubernetes(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/kubernetes/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	var texts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, "\n---\n")
}

// TestKubernetes: the manifests are what the API server takes, and fit together.
func TestKubernetes(t *testing.T) {
	checkFaults(t, kubernetes(t), kubernetesFaults, []change{
		{"livenessProbe:", "livelinessProbe:", "livelinessProbe"},
		{"readOnlyRootFilesystem", "readonlyRootFilesystem", "readonlyRootFilesystem"},
		{"apiVersion: apps/v1", "apiVersion: apps/v2", "apps/v2"},
		{"periodSeconds: 10", `periodSeconds: "10"`, "periodSeconds"},
		{"interval: 15s", "intervall: 15s", "intervall"},
		{"  replicas: 3", "  replicas: 3\n  replicas: 2", "replicas"},
		{"matchLabels: {app.kubernetes.io/name: keyrange}", "matchLabels: {app: keyrange}", "Deployment: its selector"},
		{"selector: {app.kubernetes.io/name: keyrange}", "selector: {app: keyrange}", "Service keyrange: its selector"},
		{"app.kubernetes.io/component: admin}\nspec:", "app.kubernetes.io/component: ops}\nspec:", "ServiceMonitor: its selector"},
		{"targetPort: http", "targetPort: web", "no port web"},
		{"path: /readyz, port: http", "path: /readyz, port: 8081", "readinessProbe: the container has no port 8081"},
		{"containerPort: 9090", "containerPort: 9091", "the container has ports"},
		{"- port: admin", "- port: metrics", "has no port metrics"},
		{"mountPath: /etc/keyrange", "mountPath: /etc/gateway", "not mounted on /etc/keyrange"},
		{"configMap: {name: keyrange}", "configMap: {name: gateway}", "not mounted"},
		{"key: MONGO_PASSWORD}", "key: MONGODB_PASSWORD}", "env MONGO_PASSWORD"},
		{"- name: MONGO_PASSWORD", "- name: MONGODB_PASSWORD", "the config needs [MONGO_PASSWORD MYSQL_PASSWORD]"},
		{"--from-literal=MYSQL_PASSWORD=... ", "", "the comment makes [MONGO_PASSWORD]"},
		{"shutdown_grace: 20s", "shutdown_grace: 35s", "terminationGracePeriodSeconds"},
		{"memory: 1Gi", "memory: 900Mi", "GOMEMLIMIT"},
		{"replicas: 3", "replicas: 1", "lets all pods go"},
	})
}

// TestKubernetesServes: the config of the ConfigMap is valid, and a gateway with the arguments of the pod answers the probes,
// and Prometheus on the other listener.
func TestKubernetesServes(t *testing.T) {
	m, faults := decode(kubernetes(t))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	checkConfig(t, "ConfigMap", m.config.Data["config.yaml"])
	server, admin := serving(t, m.container().Args)
	for what, p := range m.probes() {
		checkServed(t, what, server+p.HTTPGet.Path)
	}
	for _, e := range m.monitor.Spec.Endpoints {
		checkServed(t, "ServiceMonitor", admin+e.Path)
	}
}
