package main

import (
	"encoding/json"
	"fmt"
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

type declared struct {
	// Overloads of a function are in the order in which the checker tries them.
	Overloads []overload `json:"overloads"`
	// Macros are written as the function, the number of arguments, and whether there is a target.
	Macros []string `json:"macros"`
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
		answer.Macros = append(answer.Macros, macroName(m.Function(), m.ArgCount(), m.IsReceiverStyle()))
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

func macroName(function string, arguments int, member bool) string {
	return fmt.Sprintf("macro %s/%d/%t", function, arguments, member)
}

// usesOf names the overloads and macros of an expression that compiles.
func usesOf(env *celgo.Env, expression string) ([]string, error) {
	tracking, err := env.Extend(celgo.EnableMacroCallTracking())
	if err != nil {
		return nil, err
	}
	compiled, issues := tracking.Compile(expression)
	if issues != nil {
		return nil, issues.Err()
	}
	found := map[string]bool{}
	for _, reference := range compiled.NativeRep().ReferenceMap() {
		for _, id := range reference.OverloadIDs {
			found[id] = true
		}
	}
	for _, expanded := range compiled.NativeRep().SourceInfo().MacroCalls() {
		call := expanded.AsCall()
		found[macroName(call.FunctionName(), len(call.Args()), call.IsMemberFunction())] = true
	}
	return slices.Sorted(maps.Keys(found)), nil
}
