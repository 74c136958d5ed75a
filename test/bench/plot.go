package main

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"slices"
)

// Geometry of the plot, in pixels.
const (
	plotLeft, plotRight = 52, 16
	plotTop             = 74 // title and legend
	panelHeight         = 240
	panelGap            = 74 // between panels: workload names and the next heading
	captionHeight       = 34
	barWidth, barGap    = 22, 3
	groupGap            = 22
	minGroupWidth       = 95 // of the longest name
	gridLines           = 6  // about so many
)

// barColours by number of clients, from light to dark.
var barColours = []string{"#cfe1f2", "#93bfe3", "#5597cf", "#2f74b0", "#1f5588"}

// drawing is the plot as the template takes it, all coordinates worked out.
type drawing struct {
	Width, Height, Left, Right, CaptionY int
	Title, Caption, Source               string
	Legend                               []legendEntry
	Panels                               []panel
}

type legendEntry struct {
	X      int
	Colour string
	Text   string
}

// panel is one size of documents.
type panel struct {
	Heading               string
	Top, Bottom, HeadingY int
	LabelY                int
	Grid                  []gridLine
	OneY                  float64
	Bars                  []bar
	Groups                []group
}

type gridLine struct {
	Y    float64
	Text string
}

// bar is a median with a whisker from the least to the greatest ratio, and the target if there is one.
type bar struct {
	X, Mid                        int
	Y, Height, MinY, MaxY, LabelY float64
	Colour, Label, Tip            string
	HasTarget                     bool
	TargetY                       float64
}

// group is the bars of one workload.
type group struct {
	Mid  int
	Text string
}

// plot draws the ratios of throughput as an SVG.
func plot(r *results) []byte {
	sizes := sizesOf(r.Cells)
	d := drawing{
		Title:   "Throughput: gateway over HTTP / one-by-one clients with the plain drivers",
		Source:  fmt.Sprintf("%s: %s", r.Date, r.Command),
		Caption: fmt.Sprintf("Bars: median of %s, whiskers: min and max, dashes: target. Red: as fast as direct.", plural(len(r.Cells[0].Rounds), "round")),
		Left:    plotLeft,
	}
	var counts []int
	for i := range r.Cells {
		if !slices.Contains(counts, r.Cells[i].Clients) {
			counts = append(counts, r.Cells[i].Clients)
		}
	}
	slices.Sort(counts)
	for i, n := range counts {
		d.Legend = append(d.Legend, legendEntry{plotLeft + i*110, colourOf(i), plural(n, "client")})
	}
	for i, size := range sizes {
		top := plotTop + i*(panelHeight+panelGap)
		p, right := drawPanel(r.Cells, counts, size, top)
		d.Panels = append(d.Panels, p)
		d.Right = max(d.Right, right, minPlotWidth)
	}
	d.Width = d.Right + plotRight
	d.CaptionY = plotTop + len(sizes)*(panelHeight+panelGap) - panelGap + 52
	d.Height = d.CaptionY + captionHeight
	var out bytes.Buffer
	if err := svg.Execute(&out, d); err != nil {
		panic(err) // the template and its data are both in this file
	}
	return out.Bytes()
}

// minPlotWidth leaves room for title and caption.
const minPlotWidth = 820

func colourOf(i int) string { return barColours[min(i, len(barColours)-1)] }

// drawPanel places the bars of one size of documents and says how far right they go.
func drawPanel(cells []cell, counts []int, size, top int) (panel, int) {
	p := panel{Heading: fmt.Sprintf("documents of %d bytes", size), Top: top, Bottom: top + panelHeight, HeadingY: top - 8, LabelY: top + panelHeight + 18}
	highest := 1.0
	for i := range cells {
		if cells[i].DocumentBytes == size {
			target, _ := cells[i].ratioVerdict()
			highest = max(highest, cells[i].ratio().Max, target)
		}
	}
	step := niceStep(highest / gridLines)
	highest = math.Ceil(highest*1.06/step) * step
	y := func(v float64) float64 { return float64(p.Bottom) - v/highest*panelHeight }
	for i := 0; float64(i)*step <= highest+step/2; i++ {
		p.Grid = append(p.Grid, gridLine{y(float64(i) * step), fmt.Sprintf("%gx", math.Round(float64(i)*step*100)/100)})
	}
	p.OneY = y(1)
	width := len(counts)*(barWidth+barGap) - barGap
	x, start := plotLeft+groupGap/2, 0
	for i := range cells {
		c := &cells[i]
		if c.DocumentBytes != size {
			continue
		}
		if n := len(p.Groups); n == 0 || p.Groups[n-1].Text != c.Title {
			if n > 0 {
				x = start + max(width, minGroupWidth) + groupGap
			}
			start = x
			x += max(0, minGroupWidth-width) / 2
			p.Groups = append(p.Groups, group{x + width/2, c.Title})
		}
		ratio, b := c.ratio(), bar{X: x, Mid: x + barWidth/2, Colour: colourOf(slices.Index(counts, c.Clients))}
		b.Y, b.MinY, b.MaxY = y(ratio.Median), y(ratio.Min), y(ratio.Max)
		b.Height, b.LabelY, b.Label = float64(p.Bottom)-b.Y, b.MaxY-4, label(ratio.Median)
		b.Tip = fmt.Sprintf("%s: %s (%s to %s)", c, short(ratio.Median), short(ratio.Min), short(ratio.Max))
		target, v := c.ratioVerdict()
		b.HasTarget, b.TargetY = v != "", y(target)
		p.Bars = append(p.Bars, b)
		x += barWidth + barGap
	}
	return p, x + groupGap/2
}

// label is a ratio as short as a bar is wide.
func label(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// niceStep rounds a step up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power*1.0001 {
			return m * power
		}
	}
	return 10 * power
}

// svg is the plot. html/template escapes what is put into it.
var svg = template.Must(template.New("plot").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="11" fill="#222">
<rect width="100%" height="100%" fill="#fff"/>
<text x="{{.Left}}" y="24" font-size="15" font-weight="600">{{.Title}}</text>
{{- range .Legend}}
<rect x="{{.X}}" y="36" width="12" height="12" fill="{{.Colour}}"/><text x="{{.X}}" dx="17" y="46">{{.Text}}</text>
{{- end}}
{{- $d := .}}
{{- range .Panels}}
<text x="{{$d.Right}}" y="{{.HeadingY}}" text-anchor="end" font-weight="600">{{.Heading}}</text>
{{- range .Grid}}
<line x1="{{$d.Left}}" x2="{{$d.Right}}" y1="{{.Y}}" y2="{{.Y}}" stroke="#e3e3e3"/><text x="{{$d.Left}}" dx="-6" y="{{.Y}}" dy="4" text-anchor="end">{{.Text}}</text>
{{- end}}
<text transform="translate(14 {{.Bottom}}) rotate(-90)" x="120" text-anchor="middle">gateway / direct</text>
{{- range .Bars}}
<g><title>{{.Tip}}</title><rect x="{{.X}}" y="{{.Y}}" width="22" height="{{.Height}}" fill="{{.Colour}}"/>
<path d="M{{.Mid}} {{.MinY}}V{{.MaxY}}" stroke="#222"/><path d="M{{.Mid}} {{.MinY}}m-4 0h8M{{.Mid}} {{.MaxY}}m-4 0h8" stroke="#222"/>
{{- if .HasTarget}}<path d="M{{.X}} {{.TargetY}}m-1 0h24" stroke="#e07b00" stroke-width="2" stroke-dasharray="4 2"/>{{end}}</g>
{{- end}}
<line x1="{{$d.Left}}" x2="{{$d.Right}}" y1="{{.OneY}}" y2="{{.OneY}}" stroke="#c22" stroke-width="1.2"/>
{{- range .Bars}}
<text x="{{.Mid}}" y="{{.LabelY}}" text-anchor="middle" font-size="10" stroke="#fff" stroke-width="3" paint-order="stroke">{{.Label}}</text>
{{- end}}
{{- $p := .}}
{{- range .Groups}}
<text x="{{.Mid}}" y="{{$p.LabelY}}" text-anchor="middle">{{.Text}}</text>
{{- end}}
{{- end}}
<text x="{{.Left}}" y="{{.CaptionY}}" font-size="10" fill="#555">{{.Caption}}</text>
<text x="{{.Left}}" y="{{.CaptionY}}" dy="16" font-size="10" fill="#555">{{.Source}}</text>
</svg>
`))
