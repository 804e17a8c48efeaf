package main

import (
	"encoding/json"
	"maps"
	"slices"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

type environmentCase struct {
	EnvType  environment.Type `json:"envType"`
	Features cel.Features     `json:"features"`
}

type overload struct {
	ID         string   `json:"id"`
	Function   string   `json:"function"`
	Member     bool     `json:"member"`
	Parameters []string `json:"parameters"`
	Result     string   `json:"result"`
}

type macro struct {
	Function string `json:"function"`
	Member   bool   `json:"member"`
	// Arguments is the number of arguments.
	Arguments int `json:"arguments"`
}

type declared struct {
	// Overloads of a function are in the order in which the checker tries them.
	Overloads []overload `json:"overloads"`
	Macros    []macro    `json:"macros"`
}

// declarations answers what expressions of an environment may use.
func declarations(text json.RawMessage) (any, error) {
	var c environmentCase
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	env, err := environmentOf(c)
	if err != nil {
		return nil, err
	}
	var answer declared
	functions := env.Functions()
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		for _, o := range functions[name].OverloadDecls() {
			parameters := make([]string, 0, len(o.ArgTypes()))
			for _, t := range o.ArgTypes() {
				parameters = append(parameters, t.String())
			}
			answer.Overloads = append(answer.Overloads,
				overload{o.ID(), name, o.IsMemberFunction(), parameters, o.ResultType().String()})
		}
	}
	for _, m := range env.Macros() {
		answer.Macros = append(answer.Macros, macro{m.Function(), m.IsReceiverStyle(), m.ArgCount()})
	}
	return answer, nil
}

// environmentOf is reached through a compiled expression, because the package of the allocator exports no other way.
func environmentOf(c environmentCase) (*celgo.Env, error) {
	compiled := cel.GetCompiler(c.Features).CompileCELExpression("true", cel.Options{EnvType: &c.EnvType})
	if compiled.Error != nil {
		return nil, compiled.Error
	}
	return compiled.Environment, nil
}
