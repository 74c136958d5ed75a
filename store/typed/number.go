package typed

import (
	"bytes"
	"math"
	"slices"
	"strconv"
)

// decimal is a number exactly: 0.digits times ten to the power of point. Its digits begin and end with none that is zero;
// zero has no digits.
type decimal struct {
	negative bool
	digits   []byte
	point    int
}

// farExponent is beyond all types, and far enough from overflow.
const farExponent = 1 << 30

// parseDecimal reads a number in the notation of JSON, leading zeros allowed; not ok for anything else.
func parseDecimal(text []byte) (d decimal, ok bool) {
	text, d.negative = bytes.CutPrefix(text, []byte{'-'})
	mantissa, power := text, []byte(nil)
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		mantissa, power = text[:i], text[i+1:]
		if len(bytes.TrimLeft(power, "+-")) == 0 {
			return d, false
		}
	}
	whole, fraction, dotted := bytes.Cut(mantissa, []byte{'.'})
	if len(whole) == 0 || dotted && len(fraction) == 0 || !allDigits(whole) || !allDigits(fraction) {
		return d, false
	}
	exponent := 0
	if power != nil {
		var err error
		if exponent, err = strconv.Atoi(string(power)); err != nil || exponent > farExponent || exponent < -farExponent {
			if !allDigits(bytes.TrimLeft(power, "+-")) {
				return d, false
			}
			exponent = farExponent
			if power[0] == '-' {
				exponent = -farExponent
			}
		}
	}
	digits := slices.Concat(whole, fraction)
	d.digits = bytes.TrimLeft(digits, "0")
	d.point = len(whole) + exponent - (len(digits) - len(d.digits))
	d.digits = bytes.TrimRight(d.digits, "0")
	if len(d.digits) == 0 {
		return decimal{}, true // there is no negative zero
	}
	return d, true
}

func allDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// whole is how many digits there are before the point, 0 for none but zero.
func (d decimal) whole() int { return max(0, d.point) }

// fraction is how many digits there are after the point.
func (d decimal) fraction() int { return max(0, len(d.digits)-d.point) }

// appendText adds the number with so many digits after the point, which must be as many as it has at least.
func (d decimal) appendText(dst []byte, scale int) []byte {
	if d.negative {
		dst = append(dst, '-')
	}
	digit := func(i int) byte {
		if i < 0 || i >= len(d.digits) {
			return '0'
		}
		return d.digits[i]
	}
	for i := range max(1, d.point) {
		if d.point <= 0 {
			i = -1
		}
		dst = append(dst, digit(i))
	}
	if scale > 0 {
		dst = append(dst, '.')
	}
	for i := range scale {
		dst = append(dst, digit(d.point+i))
	}
	return dst
}

func (d decimal) equal(other decimal) bool {
	return d.negative == other.negative && d.point == other.point && bytes.Equal(d.digits, other.digits)
}

// bounds are the least and the largest value of a type whose cells are int64.
func (t Type) bounds() (lo, hi int64) {
	bits := map[kind]int{kindTinyint: 8, kindSmallint: 16, kindMediumint: 24, kindInt: 32, kindBigint: 64}[t.kind]
	if t.unsigned {
		return 0, 1<<bits - 1
	}
	return math.MinInt64 >> (64 - bits), math.MaxInt64 >> (64 - bits)
}

// appendFloat adds a float as JSON: as few digits as tell it from all others, with an exponent where it is short.
func appendFloat(dst []byte, f float64) []byte {
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
		if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' { // e-07
			dst = append(dst[:n-2], dst[n-1])
		}
		return dst
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}
