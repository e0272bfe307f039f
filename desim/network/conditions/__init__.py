"""What a scenario fixes around the agents: links, graphs, devices, absences, who is waited for."""
