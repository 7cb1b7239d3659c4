"""Draw a workflow as text, Mermaid or SVG."""
