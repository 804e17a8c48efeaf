package main

import (
	"context"
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

// evaluations is how often an expression is evaluated, to see whether the order of a map makes a difference.
const evaluations = 4

type selectorCase struct {
	Expression       string           `json:"expression"`
	EnvType          environment.Type `json:"envType"`
	Features         cel.Features     `json:"features"`
	Device           celDevice        `json:"device"`
	DerivedAttribute bool             `json:"derivedAttribute"`
	// Trace asks for the overloads and macros that the expression uses.
	Trace bool `json:"trace"`
}

type celDevice struct {
	Driver                   string                                                    `json:"driver"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
}

type selectorAnswer struct {
	CompileError string                       `json:"compileError"`
	Match        bool                         `json:"match"`
	Attribute    *resourceapi.DeviceAttribute `json:"attribute,omitempty"`
	RuntimeError string                       `json:"runtimeError"`
	ActualCost   uint64                       `json:"actualCost"`
	CostVaries   bool                         `json:"costVaries,omitempty"`
	Varies       bool                         `json:"varies,omitempty"`
	Uses         []string                     `json:"uses,omitempty"`
}

// selectors answers a selector case, or one of a derived attribute.
func selectors(text json.RawMessage) (any, error) {
	var c selectorCase
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	compiled := cel.GetCompiler(c.Features).CompileCELExpression(c.Expression, cel.Options{
		EnvType:          &c.EnvType,
		DerivedAttribute: c.DerivedAttribute,
	})
	if compiled.Error != nil {
		return selectorAnswer{CompileError: compiled.Error.Error()}, nil
	}
	first := evaluate(&c, &compiled)
	if c.Trace {
		uses, err := usesOf(compiled.Environment, c.Expression)
		if err != nil {
			return nil, err
		}
		first.Uses = uses
	}
	for range evaluations - 1 {
		other := evaluate(&c, &compiled)
		first.CostVaries = first.CostVaries || other.ActualCost != first.ActualCost
		first.Varies = first.Varies || other.Match != first.Match || (other.RuntimeError == "") != (first.RuntimeError == "") ||
			!apiequality.Semantic.DeepEqual(other.Attribute, first.Attribute)
	}
	return first, nil
}

func evaluate(c *selectorCase, compiled *cel.CompilationResult) selectorAnswer {
	var answer selectorAnswer
	input := cel.Device{
		Driver:                   c.Device.Driver,
		AllowMultipleAllocations: c.Device.AllowMultipleAllocations,
		Attributes:               c.Device.Attributes,
		Capacity:                 c.Device.Capacity,
	}
	if c.DerivedAttribute {
		attribute, details, err := compiled.EvaluateDerivedAttribute(context.Background(), input)
		answer.Attribute = attribute
		if details != nil && details.ActualCost() != nil {
			answer.ActualCost = *details.ActualCost()
		}
		if err != nil {
			answer.RuntimeError = err.Error()
		}
		return answer
	}
	match, details, err := compiled.DeviceMatches(context.Background(), input)
	answer.Match = match
	if details != nil && details.ActualCost() != nil {
		answer.ActualCost = *details.ActualCost()
	}
	if err != nil {
		answer.RuntimeError = err.Error()
	}
	return answer
}
