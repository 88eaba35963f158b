"""The leaderboard's pages: rendered by the server, readable without a script."""
