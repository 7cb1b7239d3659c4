"""An MCP server, with which agents start runs, read their results and merge them within limits."""
