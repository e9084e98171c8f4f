"""Proposals of a plan, built by an implementation and handed to a compiler: `meshproof plan --verify`."""
