package store

// Overview is how the ranges are spread over the nodes, and which circuits are open.
type Overview struct {
	// RangeSize is the number of IDs in each range.
	RangeSize int64
	// Levels are when the gateway warns of full ranges.
	Levels AlarmLevels
	// Nodes are in the order of config.
	Nodes []NodeOverview
	// Circuits are those of the index and of each node.
	Circuits []Circuit
}

// NodeOverview is a node as config has it.
type NodeOverview struct {
	Name string
	// Ranges is the list of its ranges in the words of config, such as "1-5,9".
	Ranges string
	// Drained: it takes no new records.
	Drained bool
}

// Circuit is the state of the two circuit breakers of a database. While one is open the database is down for such calls, which
// are refused at once until a probe is answered.
type Circuit struct {
	// Kind and Name say which database, as in Health.
	Kind, Name            string
	ReadsOpen, WritesOpen bool
}

// Overview asks no database and does not wait.
func (s *Store) Overview() Overview {
	now := s.topology.Load()
	o := Overview{RangeSize: now.layout.Size(), Levels: *s.gauge.alarms.Load(), Circuits: s.circuits()}
	for _, n := range now.layout.Nodes() {
		o.Nodes = append(o.Nodes, NodeOverview{Name: n.Name, Ranges: n.Ranges.String(), Drained: n.Drain})
	}
	return o
}

// circuits lists the circuits of the index and of the nodes.
func (s *Store) circuits() []Circuit {
	all := []Circuit{{"index", "index", s.gate.reads.open(), s.gate.writes.open()}}
	for _, n := range s.topology.Load().nodes {
		all = append(all, Circuit{"node", n.name, n.guarded.reads.open(), n.guarded.writes.open()})
	}
	return all
}
