package k6

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// runOptions are the options that a script exports.
type runOptions struct {
	Scenarios         map[string]scenario `json:"scenarios"`
	Thresholds        map[string][]string `json:"thresholds"`
	SetupTimeout      duration            `json:"setupTimeout"`
	TeardownTimeout   duration            `json:"teardownTimeout"`
	SummaryTrendStats []string            `json:"summaryTrendStats"`
	SystemTags        []string            `json:"systemTags"`
}

// scenario is one of the options' scenarios, of any executor that is known.
type scenario struct {
	Executor        string    `json:"executor"`
	Exec            string    `json:"exec"`
	StartTime       duration  `json:"startTime"`
	GracefulStop    *duration `json:"gracefulStop"`
	VUs             int       `json:"vus"`
	Iterations      int       `json:"iterations"`
	MaxDuration     duration  `json:"maxDuration"`
	Duration        duration  `json:"duration"`
	Rate            float64   `json:"rate"`
	StartRate       float64   `json:"startRate"`
	TimeUnit        duration  `json:"timeUnit"`
	PreAllocatedVUs int       `json:"preAllocatedVUs"`
	MaxVUs          int       `json:"maxVUs"`
	Stages          []stage   `json:"stages"`
}

// stage is a part of a ramp: the rate becomes target within duration, evenly.
type stage struct {
	Target   float64  `json:"target"`
	Duration duration `json:"duration"`
}

// duration is a length of time as k6 writes it, like 1m30s.
type duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(s)
	*d = duration(parsed)
	return err
}

// parseOptions reads options. What the engine does not know is an error.
func parseOptions(text []byte) (o runOptions, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return o, fmt.Errorf("options: %w", err)
	}
	for name, s := range o.Scenarios {
		if err := s.check(); err != nil {
			return o, fmt.Errorf("scenario %s: %w", name, err)
		}
	}
	return o, nil
}

// vus is how many VUs the scenario takes.
func (s scenario) vus() int { return max(s.VUs, s.MaxVUs) }

// grace is how long iterations may go on after the end.
func (s scenario) grace() time.Duration {
	if s.GracefulStop == nil {
		return 30 * time.Second
	}
	return time.Duration(*s.GracefulStop)
}

// length is how long the scenario may take, without its grace.
func (s scenario) length() time.Duration {
	total := time.Duration(s.MaxDuration + s.Duration)
	for _, one := range s.Stages {
		total += time.Duration(one.Duration)
	}
	return total
}

// end is when its VUs are free for others at the latest.
func (s scenario) end() time.Duration { return time.Duration(s.StartTime) + s.length() + s.grace() }

// rateAt is how many iterations per second start at a time since the beginning.
func (s scenario) rateAt(at time.Duration) float64 {
	unit := time.Duration(s.TimeUnit).Seconds()
	if len(s.Stages) == 0 {
		return s.Rate / unit
	}
	rate := s.StartRate
	for _, one := range s.Stages {
		length := time.Duration(one.Duration)
		if at < length {
			return (rate + (one.Target-rate)*at.Seconds()/length.Seconds()) / unit
		}
		at -= length
		rate = one.Target
	}
	return rate / unit
}

// check refuses what k6 would refuse, too, or what the scripts rely on.
func (s scenario) check() error {
	var whole bool
	switch s.Executor {
	case "per-vu-iterations":
		whole = s.VUs > 0 && s.Iterations > 0 && s.MaxDuration > 0
	case "constant-vus":
		whole = s.VUs > 0 && s.Duration > 0
	case "constant-arrival-rate":
		whole = s.Rate > 0 && s.Duration > 0 && s.TimeUnit > 0
	case "ramping-arrival-rate":
		whole = s.StartRate > 0 && len(s.Stages) > 0 && s.TimeUnit > 0
	default:
		return fmt.Errorf("executor %q is not known", s.Executor)
	}
	if !whole || s.length() <= 0 {
		return fmt.Errorf("something is missing for a %s", s.Executor)
	}
	if s.PreAllocatedVUs != s.MaxVUs {
		return fmt.Errorf("preAllocatedVUs %d, maxVUs %d: VUs that come later may leave no ledger", s.PreAllocatedVUs, s.MaxVUs)
	}
	return nil
}
