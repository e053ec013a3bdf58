"""Authentication of the test proxy: the key `sk-TEAM-USER` belongs to this team and user."""

from litellm.proxy._types import UserAPIKeyAuth


async def auth(request, api_key: str) -> UserAPIKeyAuth:
    _, team, user = api_key.split("-")
    return UserAPIKeyAuth(api_key=api_key, team_id=team, user_id=user, org_id="org", models=[])
