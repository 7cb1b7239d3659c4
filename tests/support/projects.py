"""Small projects of several kinds."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.repository import git, make_repository

PYTHON = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=75"]
build-backend = "setuptools.build_meta"

[project]
name = "shop"
version = "1.0"
requires-python = ">=3.11"
dependencies = []

[dependency-groups]
dev = ["ruff>=0.8"]
""",
    "uv.lock": """\
version = 1
revision = 2
requires-python = ">=3.11"

[[package]]
name = "ruff"
version = "0.8.4"
source = { registry = "https://pypi.example/simple" }

[[package]]
name = "shop"
version = "1.0"
source = { editable = "." }

[package.dev-dependencies]
dev = [{ name = "ruff" }]
""",
    "Makefile": """\
.PHONY: test lint

test:
\tpython3 -m unittest discover -s tests -t .

lint:
\truff check .
""",
    "shop/__init__.py": "",
    "shop/prices.py": "def total(prices):\n    return sum(prices)\n",
    "tests/__init__.py": "",
    "tests/test_prices.py": """\
import unittest

from shop.prices import total


class Prices(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)
""",
    ".gitignore": ".venv/\n__pycache__/\n",
}
NODE = {
    "package.json": """\
{
  "name": "shop",
  "version": "1.0.0",
  "type": "module",
  "scripts": {
    "build": "node build.js",
    "test": "node --test"
  },
  "engines": { "node": ">=20" }
}
""",
    "package-lock.json": """\
{
  "name": "shop",
  "version": "1.0.0",
  "lockfileVersion": 3,
  "requires": true,
  "packages": {
    "": {
      "name": "shop",
      "version": "1.0.0",
      "engines": { "node": ">=20" }
    }
  }
}
""",
    "prices.js": "export const total = (prices) => prices.reduce((a, b) => a + b, 0);\n",
    "prices.test.js": """\
import assert from "node:assert";
import test from "node:test";
import { total } from "./prices.js";

test("total", () => assert.equal(total([1, 2]), 3));
""",
    ".gitignore": "node_modules/\n",
}
GO = {
    "go.mod": "module example.org/shop\n\ngo 1.22\n",
    "prices/prices.go": """\
// Package prices adds up.
package prices

// Total is the sum.
func Total(prices []int) int {
\tsum := 0
\tfor _, price := range prices {
\t\tsum += price
\t}
\treturn sum
}
""",
    "prices/prices_test.go": """\
package prices

import "testing"

func TestTotal(t *testing.T) {
\tif Total([]int{1, 2}) != 3 {
\t\tt.Fatal("wrong")
\t}
}
""",
}
_WEB = """\
{
  "name": "@shop/web",
  "version": "1.0.0",
  "scripts": { "test": "node -e \\"process.exit(0)\\"" },
  "dependencies": { "@shop/prices": "*" }
}
"""
MONOREPO = {
    "package.json": """\
{
  "name": "shop",
  "private": true,
  "workspaces": ["packages/*"]
}
""",
    "package-lock.json": """\
{
  "name": "shop",
  "lockfileVersion": 3,
  "requires": true,
  "packages": {
    "": { "name": "shop", "workspaces": ["packages/*"] },
    "node_modules/@shop/prices": { "resolved": "packages/prices", "link": true },
    "node_modules/@shop/web": { "resolved": "packages/web", "link": true },
    "packages/prices": { "name": "@shop/prices", "version": "1.0.0" },
    "packages/web": {
      "name": "@shop/web",
      "version": "1.0.0",
      "dependencies": { "@shop/prices": "*" }
    }
  }
}
""",
    "packages/prices/package.json": '{ "name": "@shop/prices", "version": "1.0.0" }\n',
    "packages/web/package.json": _WEB,
    "services/api/pyproject.toml": '[project]\nname = "api"\nversion = "1.0"\n',
    "services/api/tests/test_api.py": "import unittest\n",
    "services/ship/go.mod": "module example.org/ship\n\ngo 1.22\n",
    "services/ship/ship.go": "// Package ship ships.\npackage ship\n",
}
COMPOSE = {
    "requirements.txt": "# none yet\n",
    "app.py": "print('hello')\n",
    "tests/test_app.py": """\
import unittest


class App(unittest.TestCase):
    def test_it(self):
        self.assertTrue(True)
""",
    "Makefile": "check:\n\tpython3 -m unittest discover -s tests\n",
    "Dockerfile": "FROM python:3.13-slim\nCOPY . /app\n",
    ".env.example": "DATABASE_URL=postgres://shop:shop@db/shop\n",
    "compose.yaml": """\
name: shop
services:
  web:
    build: .
    depends_on:
      db:
        condition: service_healthy
    environment:
      DATABASE_URL: postgres://shop:shop@db/shop
    ports:
      - "8000:8000"
  db:
    image: postgres:17-alpine
    restart: unless-stopped
    environment:
      POSTGRES_USER: shop
      POSTGRES_PASSWORD: ${POSTGRES_PASSWORD:-shop}
    volumes:
      - data:/var/lib/postgresql/data
    ports:
      - "127.0.0.1:5432:5432"
    healthcheck:
      test: ["CMD-SHELL", "pg_isready -U shop"]
      interval: 5s
      retries: 10
  cache:
    image: redis:7-alpine
    expose: ["6379"]
volumes:
  data:
""",
}


def make_project(path: Path, files: Mapping[str, str]) -> Path:
    """Create a repository with these files."""
    make_repository(path)
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "project")
    return path
