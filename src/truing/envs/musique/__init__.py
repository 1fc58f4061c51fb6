"""Multi-hop question answering: MuSiQue, HotpotQA, 2WikiMultihopQA, also with a search tool."""
