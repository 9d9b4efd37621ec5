"""Reads templates the way the tests ask: by function, by statement, by what stands in text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from infra import topology


@dataclass(frozen=True, slots=True)
class Reading:
    """One environment's stateful and stateless template."""

    name: str
    stateful: dict[str, Any]
    stateless: dict[str, Any]

    @classmethod
    def of(cls, assembly: Any, name: str) -> Self:
        """Reads the environment's stacks out of a cloud assembly."""

        def made(part: str) -> dict[str, Any]:
            template: dict[str, Any] = assembly.get_stack_by_name(f"mesh-{name}-{part}").template
            resources: dict[str, Any] = template["Resources"]
            return resources

        return cls(name, made("stateful"), made("stateless"))

    def resources(self, kind: str, stateful: bool = False) -> dict[str, Any]:
        """Logical id to properties, of every resource of that type."""
        return {
            name: resource.get("Properties", {})
            for name, resource in (self.stateful if stateful else self.stateless).items()
            if resource["Type"] == kind
        }

    def function(self, function: topology.Function) -> dict[str, Any]:
        """The function's properties."""
        return self._functions()[function.name][1]

    def logical_id(self, function: topology.Function) -> str:
        return self._functions()[function.name][0]

    def _functions(self) -> dict[str, tuple[str, dict[str, Any]]]:
        prefix = f"mesh-{self.name}-"
        return {
            properties["FunctionName"].removeprefix(prefix): (logical_id, properties)
            for logical_id, properties in self.resources("AWS::Lambda::Function").items()
        }

    def statements(self, function: topology.Function) -> list[dict[str, Any]]:
        """Every statement of the function's role: its own, and what CDK added for triggers."""
        role_id = self.function(function)["Role"]["Fn::GetAtt"][0]
        role = self.resources("AWS::IAM::Role")[role_id]
        found = [s for p in role.get("Policies", []) for s in p["PolicyDocument"]["Statement"]]
        for policy in self.resources("AWS::IAM::Policy").values():
            if {"Ref": role_id} in policy["Roles"]:
                found += policy["PolicyDocument"]["Statement"]
        return found

    def allowed(self, function: topology.Function, service: str) -> set[str]:
        """The actions of that service that some statement allows."""
        return {
            action
            for statement in self.statements(function)
            if statement["Effect"] == "Allow"
            for action in listed(statement["Action"])
            if action.startswith(f"{service}:")
        }

    def variables(self, function: topology.Function) -> dict[str, str]:
        """The function's environment, each intrinsic as some text."""
        raw = self.function(function)["Environment"]["Variables"]
        return {name: text(value) for name, value in raw.items()}


def listed(value: Any) -> list[Any]:
    """IAM and CloudFormation leave a list of one out."""
    return value if isinstance(value, list) else [value]


def text(value: Any) -> str:
    """A value as text, what is known only once it is deployed by the name of what it stands for."""
    if isinstance(value, str):
        return value
    ((intrinsic, argument),) = value.items()
    if intrinsic == "Fn::Join":
        glue, parts = argument
        return str(glue.join(text(part) for part in parts))
    return "<" + ".".join(listed(argument)) + ">"
